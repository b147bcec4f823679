"""The rate-limited workqueue: a pure core, its limiters, and an async shell that sleeps and wakes."""

from torchctl.runtime.workqueue.core import LOW_PRIORITY, Item, Statistics, WorkQueue
from torchctl.runtime.workqueue.queue import Queue, QueueClosed
from torchctl.runtime.workqueue.ratelimit import (
    BucketLimiter,
    ExponentialLimiter,
    MaxOfLimiter,
    RateLimiter,
    default_limiter,
)

__all__ = [
    "LOW_PRIORITY",
    "BucketLimiter",
    "ExponentialLimiter",
    "Item",
    "MaxOfLimiter",
    "Queue",
    "QueueClosed",
    "RateLimiter",
    "Statistics",
    "WorkQueue",
    "default_limiter",
]
