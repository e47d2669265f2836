"""Training: settings, the loop, its state, checkpoints, validation, and the folder that records a run.

RUN/config.yaml                      the request, every setting, and what is needed of the data to build the denoiser again
RUN/metrics.jsonl                    a line for each entry of the log and for each validation
RUN/checkpoints/step-00001000.safetensors    all that is needed to resume, bit for bit
RUN/gaussian.safetensors             the Gaussian prior
RUN/verdict.json                     whether the model is better than no model
RUN/checkpoints/best.safetensors     the weights that validated best
RUN/samples/, RUN/denoised/          pictures on the way
RUN/imputed/                         imputed signals, if the run imputes
"""
