#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes optimizer.safetensors of a Hugging Face Trainer's optimizer.pt, for `skein gradients collect --gradient_type adam`.

  scripts/hf_moments.py checkpoint-105 [--base MODEL]

The checkpoint is a PEFT adapter (its base is where adapter_config.json says, or --base) or a whole model. The Trainer numbers
the parameters that train in the order of the model's modules, those with weight decay first: the model is built to ask for
that order, and every shape is compared. Needs torch, transformers, safetensors and, for adapters, peft.
"""
import argparse
import sys
from pathlib import Path

try:
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    sys.exit(f"error: {missing}: hf_moments.py needs torch, transformers, safetensors and, for adapters, peft (pip install …)")

STATES = ("exp_avg", "exp_avg_sq")


def file_name(name):
    """A parameter of PEFT's as its files call it."""
    for part in (".modules_to_save.default", ".default"):
        name = name.replace(part, "")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def open_model(folder, base):
    import transformers
    if not (folder / "adapter_config.json").exists():
        return transformers.AutoModelForCausalLM.from_pretrained(base or folder, dtype=torch.float32)
    import peft
    base = base or peft.PeftConfig.from_pretrained(folder).base_model_name_or_path
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.PeftModel.from_pretrained(model, folder, is_trainable=True)


def trainer_order(model):
    """Names and shapes as the Trainer numbers them."""
    import transformers
    decays = set(transformers.Trainer.get_decay_parameter_names(None, model))
    trained = [(name, p.shape) for name, p in model.named_parameters() if p.requires_grad]
    return [one for one in trained if one[0] in decays] + [one for one in trained if one[0] not in decays]


def has_names(state):
    """Some save states under names (FSDP); others have numbers alone."""
    return any(isinstance(key, str) and not key.isdigit() for key in state)


def moments_by_name(state_dict, order):
    """`order`: (name, shape) of every parameter that trains, as they are numbered. Refuses what does not fit: where there are
    names, nothing is paired by its place."""
    state = state_dict["state"]
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    if len(numbers) != len(order):
        sys.exit(f"error: the optimizer has {len(numbers)} parameters, the model trains {len(order)}: another adapter or base?")
    by_name = has_names(state)
    tensors = {}
    for number, (name, shape) in zip(numbers, order, strict=True):
        moments = state.get(name, state.get(file_name(name))) if by_name else state.get(number)
        if moments is None or any(key not in moments for key in STATES):
            what = name if by_name else f"{name} (parameter {number})"
            sys.exit(f"error: the optimizer has no Adam moments of {what}")
        for key in STATES:
            if moments[key].shape != shape:
                why = "another adapter or base?" if by_name else "the optimizer numbers parameters in another order than the Trainer"
                sys.exit(f"error: {key} of parameter {number} is {tuple(moments[key].shape)}, but {name} is {tuple(shape)}: {why}")
            tensors[f"{file_name(name)}.{key}"] = moments[key].float().contiguous()
    return tensors


def refuse_failure(what, error):
    """One line of what torch, transformers or peft have to say."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    sys.exit(f"error: {what}: {lines[0]}")


def read_optimizer(checkpoint):
    path = checkpoint / "optimizer.pt"
    if not path.is_file():
        beside = sorted(p.parent.name for p in checkpoint.glob("checkpoint-*/optimizer.pt"))
        sys.exit(f"error: {checkpoint} has no optimizer.pt: " + (
            f"name one of its checkpoints ({', '.join(beside)})" if beside else
            "name a checkpoint-N of the Trainer, saved without save_only_model"))
    try:
        state_dict = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or foreign pickle makes torch raise
        refuse_failure(f"cannot read {path}", error)
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= state_dict.keys():
        sys.exit(f"error: {path} is no state of an optimizer")
    return state_dict


def read_order(checkpoint, base):
    try:
        return trainer_order(open_model(checkpoint, base))
    except Exception as error:  # a folder that is no model, a base that is elsewhere, a missing package
        refuse_failure(f"cannot open {checkpoint} (--base MODEL names an adapter's base)", error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--base", help="of an adapter, if not where it says")
    options = parser.parse_args()
    state_dict = read_optimizer(options.checkpoint)
    tensors = moments_by_name(state_dict, read_order(options.checkpoint, options.base))
    save_file(tensors, options.checkpoint / "optimizer.safetensors", metadata={"format": "pt"})
    how = "by their names" if has_names(state_dict["state"]) else (
        "by the Trainer's order: the optimizer has numbers and no names, so shapes are all that could be compared")
    print(f"{options.checkpoint / 'optimizer.safetensors'}: moments of {len(tensors) // 2} parameters, paired {how}")


if __name__ == "__main__":
    main()
