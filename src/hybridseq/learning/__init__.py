"""Trained models: small decoders of attention and recurrent layers, how they are trained, and what they hold inside.

The rooms below compute with weights that somebody chose. Here the weights are found by gradient descent (paper B, Section 5).
Every model exists three times, and each is tested against the one before:

    `stack`      the architecture as data: names, shapes and initial values of one flat parameter vector
    `modules`    the definition, a plain torch module on the package's mixers; `plain` trains it with a Python time loop
    `ensemble`   many replicas at once in stacked tensors
    `native`     the whole training loop of one replica in C

`recipe` says how a run is trained, `batches` what it reads, `backends` picks the trainer. Nothing here imports torch before a
module that needs it is asked for.
"""
