// The style sheet of report.html: for screens of any width, light and dark, and for paper.
#ifndef LONGHAUL_DEPLOY_SWEEP_REPORT_STYLE_H_
#define LONGHAUL_DEPLOY_SWEEP_REPORT_STYLE_H_

namespace longhaul::cli {

// Curves have the colours of Okabe and Ito, which colour-blind people can tell apart, with a
// contrast of at least 3 against the background. Markers and dashes repeat the distinction.
inline constexpr char kReportStyle[] = R"css(
:root{color-scheme:light dark;--ink:#1c2126;--dim:#59636e;--paper:#fff;--soft:#f3f5f7;--rule:#d5dadf;
--grid:#e4e8eb;--warn:#7a4b00;--warnback:#fff3d6;--c0:#0072b2;--c1:#c44e00;--c2:#00805e;--c3:#a3478a;
--c4:#8a6100;--c5:#3b5bdb;--c6:#5a5f66;--c7:#9aa3ab}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--dim:#a4adb6;--paper:#14181c;--soft:#1d2328;
--rule:#3a434b;--grid:#2a3238;--warn:#ffd58a;--warnback:#3a2d10;--c0:#56b4e9;--c1:#f58f4a;--c2:#2cc295;
--c3:#e39cc6;--c4:#e6c229;--c5:#9db2ff;--c6:#c3c9cf;--c7:#77818a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1rem}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.25rem;margin:2.2rem 0 .5rem;padding-bottom:.2rem;border-bottom:1px solid var(--rule)}
p{max-width:48rem}
.facts,.dim{color:var(--dim)}
.note{background:var(--warnback);color:var(--warn);border-left:4px solid currentColor;padding:.6rem .9rem;
margin:.8rem 0;max-width:48rem}
.badge{border:1px solid currentColor;border-radius:.6rem;padding:0 .4rem;font-size:.75rem;color:var(--warn);
white-space:nowrap}
.plots{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))}
figure{margin:0;min-width:0;max-width:44rem}
figcaption{font-weight:600;margin-bottom:.2rem}
figure svg{display:block;width:100%;height:auto}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.6rem 0}
.legend li{display:flex;align-items:center;gap:.4rem}
.swatch{width:2.5rem;height:.9rem;flex:none}
svg text{fill:var(--ink);font-size:13px;font-family:inherit}
svg .tick{fill:var(--dim);font-size:12px}
.grid{stroke:var(--grid)}.axis{stroke:var(--dim);fill:none}
.line{fill:none;stroke-width:2}.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 4}.d3{stroke-dasharray:9 3 2 3}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}
.marker{fill:var(--paper);stroke-width:2}
.band{fill:var(--grid)}.diagonal{stroke:var(--dim);stroke-dasharray:3 3;fill:none}
.scroll{overflow-x:auto;margin:.8rem 0}
.scroll:focus-visible{outline:2px solid var(--c0)}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
.caption{font-weight:600;margin:1.2rem 0 .2rem}
.caption+.scroll{margin-top:0}
th,td{padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top;
white-space:nowrap}
thead th{color:var(--dim);font-weight:600;vertical-align:bottom}
tbody th{font-weight:400}
.n{text-align:right}
.w{white-space:normal;min-width:20rem}
dt{font-weight:600;margin-top:.6rem}dd{margin:0 0 0 1rem;overflow-wrap:anywhere}
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem;white-space:pre}
details{margin:.8rem 0}summary{cursor:pointer;font-weight:600}
@media(max-width:600px){svg text{font-size:16px}svg .tick{font-size:15px}}
@media print{:root{color-scheme:light}body{font-size:10pt}main{max-width:none;padding:0}
h2,.legend{break-after:avoid}figure,tr,.legend{break-inside:avoid}
.legend{display:block}.legend li{display:inline-flex;margin-right:1rem}
.plots{display:block}.plots figure{display:inline-block;width:48%;margin:0 1% 1rem 0;vertical-align:top}
.scroll{overflow:visible}table{font-size:7.5pt}.caption{break-after:avoid}thead{display:table-header-group}
th,td{white-space:normal;padding-right:.4rem}.n{white-space:nowrap}.w{min-width:0}
pre{white-space:pre-wrap;font-size:7.5pt}.note{border:1px solid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_REPORT_STYLE_H_
