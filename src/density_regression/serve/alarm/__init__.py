"""An alarm with a stated rate of false alarms, for rows that a model is asked about. Needs numpy alone."""

from density_regression.serve.alarm.alarm import Alarm
from density_regression.serve.alarm.moves import ColumnMove
from density_regression.serve.alarm.report import AlarmReport
from density_regression.serve.alarm.rows import standardised
from density_regression.serve.alarm.state import AlarmStateError

__all__ = ["Alarm", "AlarmReport", "AlarmStateError", "ColumnMove", "standardised"]
