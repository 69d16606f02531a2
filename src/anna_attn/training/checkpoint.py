"""Checkpoints: one safetensors file with weights, hash tables, optimizer state and a JSON text.

The file is a plain safetensors file. Its tensors are named `model/...` (the state dict, buffers
included) and `optimizer/<parameter>/<field>`; its metadata holds `format`, `format_version`,
`content` (JSON: model configuration, training state, free metadata) and `digest`, BLAKE2b over the
content and all tensors, because safetensors itself does not notice a flipped bit in the data. No
pickle is written or read. One file, so that weights and training state cannot get out of step.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from anna_attn import __version__
from anna_attn.nn import AnnaTransformer, TransformerConfig
from anna_attn.training.errors import CheckpointError

FORMAT = "anna-attn checkpoint"
FORMAT_VERSION = "1"
_ACCEPTED = f"accepted: an {FORMAT} file, format version {FORMAT_VERSION} (.safetensors)"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory.

    Args:
        path: where it was read from.
        model_config: `TransformerConfig.to_dict()` of the saved model.
        model_state: its state dict, on the CPU.
        optimizer_state: per parameter name, the optimizer's tensors; empty if none were saved.
        state: where training stood; empty if saved outside training.
        metadata: what the caller of `save_checkpoint` added.
    """

    path: Path
    model_config: dict[str, Any]
    model_state: dict[str, Tensor]
    optimizer_state: dict[str, dict[str, Tensor]]
    state: dict[str, Any]
    metadata: dict[str, Any]

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Load the weights, the tables and, where given, the optimizer's state in place.

        Raises: CheckpointError if names or shapes are not those of the model.
        """
        try:
            model.load_state_dict(self.model_state)
        except RuntimeError as error:
            raise CheckpointError(
                f"{self.path} holds another model than the one given: {_one_line(error)}"
            ) from error
        if optimizer is not None:
            _restore_optimizer(self, model, optimizer)


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    state: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint, all of it or nothing.

    The file is written beside its target, flushed to the disk, and renamed over it. Whatever goes
    wrong before the rename (a full disk, say), the old checkpoint stays as it was and the new one's
    beginnings are removed.

    Args:
        path: the file; its folder must exist.
        model: has a `config` with `to_dict()`.
        optimizer: its per-parameter tensors are saved; the learning rate is not.
        state: JSON-able; where training stands.
        metadata: JSON-able; anything else worth keeping with the weights.
    Raises:
        CheckpointError: the file cannot be written; one line with the system's reason.
        TypeError: state or metadata that JSON cannot hold.
    """
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        tensors.update(_optimizer_tensors(model, optimizer))
    # Clones, since safetensors refuses tensors that share memory (tied weights).
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    content = json.dumps(
        {
            "anna_attn_version": __version__,
            "model_config": model.config.to_dict(),  # pyright: ignore
            "state": dict(state or {}),
            "metadata": dict(metadata or {}),
        }
    )
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "content": content,
        "digest": _digest(content, tensors),
    }
    write_atomically(Path(path), safetensors.torch.save(tensors, metadata=header))


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint and verify it.

    Raises: CheckpointError, one line saying what was found and what is accepted: no such file, a
        folder, not a safetensors file, cut short, damaged, without our metadata, another version.
    """
    path = Path(path)
    header, tensors = _read_safetensors(path)
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file of another origin; {_ACCEPTED}")
    if header.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {header.get('format_version')!r}; {_ACCEPTED}"
        )
    text = header.get("content", "")
    if _digest(text, tensors) != header.get("digest"):
        raise CheckpointError(f"{path} is damaged: its digest does not match; {_ACCEPTED}")
    content = json.loads(text)
    model_state, optimizer_state = _split(tensors)
    return Checkpoint(
        path=path,
        model_config=content["model_config"],
        model_state=model_state,
        optimizer_state=optimizer_state,
        state=content["state"],
        metadata=content["metadata"],
    )


def load_model(path: str | Path) -> AnnaTransformer:
    """Rebuild the saved model, its own hash tables included, in evaluation mode on the CPU.

    Raises: CheckpointError, as `load_checkpoint`, and for a configuration that cannot be built.
    """
    checkpoint = load_checkpoint(path)
    try:
        model = AnnaTransformer(TransformerConfig.from_dict(checkpoint.model_config))
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{path} has a model configuration that anna-attn {__version__} cannot build: "
            f"{_one_line(error)}"
        ) from error
    checkpoint.restore(model)
    return model.eval()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by new contents, or leave it as it was.

    A symbolic link stays one: the file it names is replaced. What is no regular file (a folder, a
    device, a pipe) is refused, since a rename would put a file in its place.

    The temporary file has a fixed name, so that a killed run leaves at most one behind and the next
    save overwrites it. Two processes must not save to one path.

    Raises: CheckpointError with the system's reason.
    """
    target = path
    try:
        path = path.resolve()
        in_the_way = path.exists() and not path.is_file()
    except (OSError, RuntimeError) as error:
        # Links in a circle are one or the other, depending on Python's version.
        raise CheckpointError(f"cannot write {target}: {_reason(error)}") from error
    if in_the_way:
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise CheckpointError(f"cannot write {target}: it is {kind}; accepted: a file's path")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        kept = "; the file that was there is unchanged" if path.is_file() else ""
        raise CheckpointError(f"cannot write {target}: {_reason(error)}{kept}") from error
    finally:
        # Already renamed if all went well.
        _remove(temporary)
    _sync_folder(path.parent)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A folder that may not be written to refuses this too; the first error is reported.
        return


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system can sync folders (POSIX)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        # Some network file systems refuse; the file's own contents are on the disk already.
        return
    finally:
        os.close(descriptor)


def _read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; {_ACCEPTED}")
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; {_ACCEPTED}")
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file; {_ACCEPTED}")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty; {_ACCEPTED}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # Clones, so that nothing stays mapped to a file that a later save replaces.
            return header, {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({_one_line(error)}); {_ACCEPTED}"
        ) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {_reason(error)}") from error


def _digest(content: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(content.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"optimizer/{names[parameter]}/{field}": value
        for parameter, fields in optimizer.state.items()
        for field, value in fields.items()
    }


def _split(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    model_state: dict[str, Tensor] = {}
    optimizer_state: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, name = key.split("/", 1)
        if kind == "model":
            model_state[name] = tensor
        else:
            parameter, field = name.rsplit("/", 1)
            optimizer_state.setdefault(parameter, {})[field] = tensor
    return model_state, optimizer_state


def _restore_optimizer(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    unknown = sorted(set(checkpoint.optimizer_state) - set(parameters))
    if unknown:
        raise CheckpointError(
            f"{checkpoint.path} holds optimizer state of other parameters: {unknown}"
        )
    index: dict[Tensor, int] = {
        p: i for i, p in enumerate(p for g in optimizer.param_groups for p in g["params"])
    }
    state = {index[parameters[name]]: dict(t) for name, t in checkpoint.optimizer_state.items()}
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or _one_line(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
