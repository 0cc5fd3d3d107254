"""The evaluation report: one HTML file that needs no network, and its figures as SVG."""
