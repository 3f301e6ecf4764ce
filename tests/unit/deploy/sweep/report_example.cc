// Writes reports of made-up results for the test that opens them in a browser: report_example DIR.
#include <cstdio>
#include <limits>
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

// Many of all dimensions, with long names, a link that is not shaped, and numbers that no axis has.
SweepResults Crowded() {
  SweepResults results = Sample();
  results.points.clear();
  for (const uint64_t rate :
       {0, 1'000'000'000, 500'000'000, 400'000'000, 100'000'000, 10'000'000}) {
    for (const char* links : {"fp32", "four bits and eight bits", "c", "d", "e", "f"}) {
      for (const char* schedule : {"link-aware", "1f1b", "gpipe", "2bw"}) {
        PointResult point = SampleMeasured(rate > 0 ? rate : 2'000'000'000, links, schedule);
        point.rate_bits_per_second = rate;
        point.delay_seconds = 0.025;
        point.variant = "microbatches of 2";
        point.repeat = 2;
        results.points.push_back(point);
      }
    }
  }
  results.points[0].simulated_seconds = 0;
  for (StepResult& step : results.points[0].curve) {
    step.loss = step.validation_loss = std::numeric_limits<double>::quiet_NaN();
  }
  return results;
}

int Main(const std::string& folder) {
  const std::pair<const char*, SweepResults> reports[] = {{"full.html", Sample()},
                                                          {"partial.html", Partial()},
                                                          {"replayed.html", Replayed()},
                                                          {"crowded.html", Crowded()}};
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
