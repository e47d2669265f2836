"""The measurement file: one HDF5 file, or a folder of shards. It holds measurements and no clean signals.

    /ybar    float32 (N, C, H, W)   ȳ, zero where not measured
    /mask    uint8 (N, bytes)       P at the smallest shape that broadcasts, one bit per entry (numpy.packbits)
    /pinv    float32 (N, *mask)     Σ†, absent if all singular values are 0 or 1
    /sigma_0 float32 (N) or (1)     σ_0, so that std = σ_0 Σ†
    /group   int32 (N), /groups     the volume or subject of each sample, for splits and metrics; absent if each is its own
    /scale   float32 (N) or (1)     the raw signal is scale * x + offset
    /offset  float32 (N) or (1)     absent if it is 0
    /coverage float64 (1, *mask)    E[P]: the closed form if the corruption has one, otherwise the mean of the masks
    /V       float64 (n, n)         only for a Dense basis

The attribute `header` holds everything else as JSON. Arrays are contiguous and little-endian, so one `pread` reads a sample.
This is fast in any order and from any process, and memory does not grow with N. A file has a temporary name until it is
complete. Clean signals go to a second file with /x, /group, /scale and /offset, aligned by index.
"""
