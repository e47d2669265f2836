"""The measurement file: one HDF5 file, or a folder of shards of it, that holds measurements and no clean signal.

    /ybar    float32 (N, C, H, W)   ȳ, zero where dropped
    /mask    uint8 (N, bytes)       P at its smallest shape, a bit an entry, as numpy.packbits does
    /pinv    float32 (N, *mask)     Σ†, only where singular values are not just 0 and 1
    /sigma_0 float32 (N) or (1)     so std = σ_0 Σ†
    /group   int32 (N), /groups     volume or subject of each sample: splits and metrics go by it; absent if each is its own
    /scale   float32 (N) or (1)     the raw signal is scale * x + offset
    /offset  float32 (N) or (1)     absent if it is 0
    /coverage float64 (1, *mask)    E[P]: in closed form if the corruption knows one, else the mean of the masks
    /V       float64 (n, n)         only for a Dense basis

Everything else is a JSON text in the attribute `header`. Arrays lie in the file as they are (contiguous, little-endian), so
that a sample is read by one `pread`: fast in any order, from any process, and without memory that grows with N. A file is
written under a temporary name and renamed when complete. Clean signals go to a second file with /x, /group, /scale and
/offset, aligned by index.
"""
