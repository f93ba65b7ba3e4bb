"""The HTTP server, its page, and the alarm: what runs where torch does not."""

from density_regression.serve.alarm import Alarm, AlarmReport, AlarmStateError

__all__ = ["Alarm", "AlarmReport", "AlarmStateError"]
