"""Training: stages, the loop, checkpoints, evaluation and distillation."""

from anna_attn.training.batch import Batch, Curriculum, Sampler
from anna_attn.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_model,
    save_checkpoint,
)
from anna_attn.training.config import TrainConfig
from anna_attn.training.distill import distill, teacher_loss
from anna_attn.training.errors import (
    CheckpointError,
    MetricsError,
    NonFiniteError,
    TrainingError,
)
from anna_attn.training.evaluate import Evaluation, best_hash_seed, evaluate
from anna_attn.training.loop import (
    CHECKPOINT_NAME,
    METRICS_NAME,
    TrainResult,
    train,
)
from anna_attn.training.losses import (
    masked_cross_entropy,
    root_mean_square_cross_entropy,
)
from anna_attn.training.metrics import MetricsLine, read_metrics
from anna_attn.training.progress import ProgressCallback, ProgressEvent, TrainingBars
from anna_attn.training.schedules import Constant, Geometric, Linear, learning_rate_at
from anna_attn.training.seeds import derive_seed, generator_for
from anna_attn.training.stages import (
    EarlyStop,
    Loss,
    MechanismSchedule,
    Stage,
    direct_stages,
    expected_stage,
    fixed_tables_stage,
    softmax_surrogate_stages,
    straight_through_stage,
    straight_through_stages,
)
from anna_attn.training.state import StageResult, TrainState

__all__ = [
    "CHECKPOINT_NAME",
    "METRICS_NAME",
    "Batch",
    "Checkpoint",
    "CheckpointError",
    "Constant",
    "Curriculum",
    "EarlyStop",
    "Evaluation",
    "Geometric",
    "Linear",
    "Loss",
    "MechanismSchedule",
    "MetricsError",
    "MetricsLine",
    "NonFiniteError",
    "ProgressCallback",
    "ProgressEvent",
    "Sampler",
    "Stage",
    "StageResult",
    "TrainConfig",
    "TrainResult",
    "TrainState",
    "TrainingBars",
    "TrainingError",
    "best_hash_seed",
    "derive_seed",
    "direct_stages",
    "distill",
    "evaluate",
    "expected_stage",
    "fixed_tables_stage",
    "generator_for",
    "learning_rate_at",
    "load_checkpoint",
    "load_model",
    "masked_cross_entropy",
    "read_metrics",
    "root_mean_square_cross_entropy",
    "save_checkpoint",
    "softmax_surrogate_stages",
    "straight_through_stage",
    "straight_through_stages",
    "teacher_loss",
    "train",
]
