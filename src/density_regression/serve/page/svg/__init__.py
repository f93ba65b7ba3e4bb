"""Drawings as SVG: functions from numbers to `Markup`, without colours, which are in `page.css`."""
