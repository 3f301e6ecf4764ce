// report.html of a sweep: one page that needs no network, with tables and charts for a screen of
// any size, light or dark, and for paper. uPlot and a script of ours, both within the page, draw
// the charts. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_REPORT_H_
#define LONGHAUL_DEPLOY_SWEEP_REPORT_H_

#include <string>

#include "deploy/sweep/results.h"

namespace longhaul::cli {

// The whole document. Says so where points are missing, failed or replayed.
std::string Report(const SweepResults& results);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_REPORT_H_
