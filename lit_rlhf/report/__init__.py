"""The page that ``python -m lit_rlhf report`` writes: one HTML file that needs nothing else.

Reading run directories, drawing SVG and assembling the page use the standard library (and PyYAML for ``config.yaml``);
torch is never imported.
"""
