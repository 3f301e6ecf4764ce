// What a stage reports of the pairs of answers that it has compared. Pure.
#pragma once

#include "longhaul/v1/worker.pb.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

inline v1::Preferences ReportOf(const PreferenceSums& sums) {
  v1::Preferences report;
  report.set_pairs(sums.pairs);
  report.set_preferred(sums.preferred);
  report.set_margins(sums.margins);
  return report;
}

}  // namespace longhaul::worker
