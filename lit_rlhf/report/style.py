"""The page's style: phone first, wider screens, dark, print. Colours after Okabe and Ito, for all eyes."""

_LIGHT = """--ink:#1b1f24;--quiet:#5a6472;--paper:#fff;--card:#f6f7f9;--rule:#dfe3e8;--link:#0b5cad;
--critical:#a40e26;--warn:#8a5300;--info:#0b5cad;
--c0:#0072b2;--c1:#c25700;--c2:#00795a;--c3:#a8488a;--c4:#7a5b00;--c5:#2d86b8;--c6:#444b55"""
_DARK = """--ink:#e7eaee;--quiet:#a4aebb;--paper:#14171b;--card:#1d2127;--rule:#333a43;--link:#7cb8f0;
--critical:#ff8a96;--warn:#f2b25c;--info:#7cb8f0;
--c0:#56b4e9;--c1:#f0a04b;--c2:#38c99b;--c3:#e39bc9;--c4:#f0e442;--c5:#8fb8ff;--c6:#c9d0d9"""

_COLOURS = "".join(f".c{number}{{--c:var(--c{number})}}" for number in range(7))

CSS = f"""
:root{{{_LIGHT}}}
@media (prefers-color-scheme:dark){{@media screen{{:root{{{_DARK}}}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1320px;padding:12px 16px 48px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}}
h1{{font-size:1.45rem;line-height:1.2;margin:.3rem 0 .6rem}}
h2{{font-size:1.15rem;margin:2rem 0 .6rem;padding-top:.7rem;border-top:1px solid var(--rule)}}
h3{{font-size:1rem;margin:1.2rem 0 .4rem}} h4{{font-size:1rem;margin:0 0 .3rem}}
p{{margin:.3rem 0}} a{{color:var(--link)}} small,.quiet{{color:var(--quiet);font-size:.86rem;font-weight:400}}
code,pre{{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86em}}
pre{{margin:0;white-space:pre-wrap;unicode-bidi:isolate}}
nav{{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin-top:.8rem}}
.axis{{position:sticky;top:0;z-index:1;display:flex;align-items:center;justify-content:flex-end;gap:.35rem;
padding:.3rem 0;background:var(--paper);font-size:.86rem}}
.axis span{{color:var(--quiet)}} .axis label{{padding:.2rem .3rem}}
.run{{margin:.6rem 0}} .note{{font-style:italic}} .unread{{color:var(--warn);font-size:.86rem}}
.shortly{{list-style:none;margin:.5rem 0 0;padding:0}}
.key{{display:inline-block;min-width:1.5em;padding:0 .35em;border-radius:3px;text-align:center;font-weight:700;
background:var(--c);color:var(--paper)}}
.tiles{{display:flex;flex-wrap:wrap;gap:.5rem;margin-top:.4rem}}
.tile{{padding:.4rem .7rem;background:var(--card);border-radius:6px}}
.tile span{{display:block;color:var(--quiet);font-size:.8rem}} .tile strong{{font-size:1.05rem}}
.figures{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));gap:1.2rem 1.6rem;
align-items:start}}
figure{{margin:0;min-width:0}} figcaption{{font-weight:600;margin-bottom:.1rem}}
svg{{display:block;width:100%;max-width:480px;height:auto}}
svg text{{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:var(--ink)}}
svg .tick{{fill:var(--quiet);font-size:10.5px}} svg .grid{{stroke:var(--rule);stroke-width:1}}
{_COLOURS}
svg path{{fill:none;stroke:var(--c);stroke-width:1.6;stroke-linejoin:round}} svg circle{{fill:var(--c)}}
svg .se{{stroke:var(--c);stroke-width:1}} svg text.end{{fill:var(--c);font-weight:600}}
svg text.gap{{fill:var(--critical);font-weight:700;font-size:13px}}
.dash1{{stroke-dasharray:5 3}} .dash2{{stroke-dasharray:1.5 2.5}} .dash3{{stroke-dasharray:7 2 1.5 2}}
.critical{{--s:var(--critical)}} .warn{{--s:var(--warn)}} .info{{--s:var(--info)}}
.band rect{{fill:var(--s);opacity:.22}} svg .band text{{fill:var(--s);font-weight:700}}
.by-hours{{display:none}}
body:has(#x-hours:checked) .by-hours{{display:block}} body:has(#x-hours:checked) .by-step{{display:none}}
details{{margin:.3rem 0}} summary{{cursor:pointer;color:var(--quiet);font-size:.86rem}}
.wide{{overflow-x:auto;max-width:100%}} table{{border-collapse:collapse;font-size:.86rem;
font-variant-numeric:tabular-nums}}
th,td{{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule);
overflow-wrap:break-word;max-width:34rem}} th{{font-weight:600}} tbody th{{font-weight:400;color:var(--quiet)}}
.finding{{margin:.6rem 0;padding:.6rem .8rem;background:var(--card);border-left:4px solid var(--s);border-radius:4px}}
.finding ol{{margin:.4rem 0;padding-left:1.3rem}} .finding li{{margin:.3rem 0}}
.badge{{display:inline-block;padding:0 .45em;border-radius:3px;background:var(--s);color:var(--paper);font-size:.8rem}}
.beneath{{margin-left:.2rem}} .beneath .finding{{background:none;padding:.3rem .7rem}}
.prompt{{margin:.8rem 0;padding:.6rem .8rem;background:var(--card);border-radius:6px}}
.prompt h4{{font-size:.86rem;color:var(--quiet);font-weight:400;margin:0}}
.events{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,190px),1fr));gap:.6rem;margin-top:.5rem}}
.event{{padding:.4rem .6rem;background:var(--paper);border-radius:4px;min-width:0}}
.step{{font-weight:600;font-size:.86rem}}
.long summary{{color:inherit;list-style:none}} .long summary span{{color:var(--link);font-size:.86rem}}
@media print{{
@page{{size:A4;margin:14mm}}
body{{max-width:none;padding:0;font-size:10pt}} .axis,nav{{display:none}}
.figures{{grid-template-columns:1fr 1fr}} figure,.finding,.prompt,tr{{break-inside:avoid}} h2,h3,h4{{break-after:avoid}}
figure>details{{display:none}} .wide{{overflow:visible}} *{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
}}
""".strip()
