// Writes reports of made-up results for the test that opens them in a browser: report_example DIR.
#include <cstdio>
#include <string>

#include "base/file.h"
#include "deploy/sweep/report.h"
#include "tests/unit/deploy/sweep/sample.h"

namespace longhaul::cli {
namespace {

SweepResults Partial() {
  SweepResults results = Sample();
  results.points[1].state = PointState::kRunFailed;
  results.points[1].reason = "the run failed: worker2 was lost";
  results.points[2].state = PointState::kWaiting;
  return results;
}

SweepResults Replayed() {
  SweepResults results = Sample();
  for (PointResult& point : results.points) {
    point.replayed = true;
    point.replay_source = "one GPU a stage";
    for (StepResult& step : point.curve)
      step.loss = step.validation_loss = step.clean_validation_loss = std::nullopt;
  }
  return results;
}

int Main(const std::string& folder) {
  const std::pair<const char*, SweepResults> reports[] = {
      {"full.html", Sample()}, {"partial.html", Partial()}, {"replayed.html", Replayed()}};
  for (const auto& [name, results] : reports) {
    const Status status = WriteFileAtomic(folder + "/" + name, Report(results));
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(Message(status)).c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace longhaul::cli

int main(int argc, char** argv) {
  return argc == 2 ? longhaul::cli::Main(argv[1]) : 2;
}
