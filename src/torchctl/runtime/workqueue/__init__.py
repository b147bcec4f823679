"""The rate-limited workqueue: a pure core, its limiter, and an async shell that sleeps and wakes."""

from torchctl.runtime.workqueue.core import LOW_PRIORITY, Item, Load, Statistics, WorkQueue
from torchctl.runtime.workqueue.queue import Queue, QueueClosed
from torchctl.runtime.workqueue.ratelimit import ExponentialLimiter, RateLimiter

__all__ = [
    "LOW_PRIORITY",
    "ExponentialLimiter",
    "Item",
    "Load",
    "Queue",
    "QueueClosed",
    "RateLimiter",
    "Statistics",
    "WorkQueue",
]
