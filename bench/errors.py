"""The one error of the benchmarks."""


class MeasurementError(Exception):
    """A measurement that could not be made; the message says what failed and how."""
