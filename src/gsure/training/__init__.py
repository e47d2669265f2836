"""A run: its settings, what they build, the folder that records it, and its checkpoints. The loop is in command/train.py.

RUN/config.yaml                      every setting, and what is needed of the data to build the denoiser again
RUN/metrics.jsonl                    a line for each entry of the log and for each validation
RUN/checkpoints/step-00001000.safetensors    all that is needed to go on, bit for bit
RUN/checkpoints/best.safetensors     the averaged weights that validated best
RUN/samples/, RUN/denoised/          pictures on the way
"""
