from privfed.api.auditing import audit as audit
from privfed.api.budgeting import budget as budget
from privfed.api.comparing import compare as compare
from privfed.api.data import load as load
from privfed.api.forecasting import forecast as forecast
from privfed.api.loading import load_run as load_run
from privfed.api.report import Report as Report
from privfed.api.result import TrainedRun
from privfed.api.running import run as run

__version__: str

Run = TrainedRun
