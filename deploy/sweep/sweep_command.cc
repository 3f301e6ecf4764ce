#include "deploy/sweep/sweep_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "coordinator/cli/format.h"
#include "coordinator/cli/table.h"
#include "deploy/cluster/cluster_command.h"
#include "deploy/sweep/prepare.h"
#include "deploy/sweep/results_store.h"
#include "deploy/sweep/runner.h"

namespace longhaul::cli {
namespace {

struct SweepOptions {
  std::string file;
  std::string out;
  std::string device = "cpu";
  std::vector<std::string> overrides;
  bool keep_going = false;
  bool retry_failed = false;
};

std::vector<const SweepPoint*> Impossible(const PreparedSweep& sweep) {
  std::vector<const SweepPoint*> impossible;
  for (const SweepJob& job : sweep.jobs) {
    if (!job.point.impossible.empty()) impossible.push_back(&job.point);
  }
  return impossible;
}

void List(const Terminal& terminal, const std::vector<const SweepPoint*>& impossible) {
  for (const SweepPoint* point : impossible) {
    terminal.err << fmt::format("{}: {}", point->id, PrintableLines(point->impossible))
                 << std::endl;
  }
}

std::string ShareText(double of, double measured) {
  return measured > 0 && of > 0 ? PercentText(of / measured) : "";
}

void PrintResults(const Terminal& terminal, const SweepResults& results) {
  Table table({{"point"},
               {"state"},
               {"tokens/s", Align::kRight},
               {"step", Align::kRight},
               {"simulated", Align::kRight},
               {"bound", Align::kRight},
               {"of bound", Align::kRight}});
  for (const PointResult& point : results.points) {
    const bool done = point.state == PointState::kMeasured;
    std::string state(ToString(point.state));
    if (point.replayed) state += ", replayed";
    table.AddRow({point.id,
                  {state, done ? Style::kGreen : Style::kYellow},
                  done ? GroupedText(point.TokensPerSecond()) : "",
                  SecondsText(point.step_seconds),
                  SecondsText(point.simulated_seconds),
                  SecondsText(point.bound_seconds),
                  ShareText(point.bound_seconds, point.step_seconds)});
  }
  table.Print(terminal);
}

// What there is to say when it has ended, well or not.
void Conclude(Invocation& invocation, const ResultsStore& store) {
  const SweepResults& results = store.results();
  if (invocation.json()) {
    invocation.terminal().out << ToJson(results);
  } else {
    PrintResults(invocation.terminal(), results);
  }
  const auto count = [&](PointState state) { return results.Count(state); };
  invocation.terminal().err << fmt::format(
                                   "{} of {} points done, {} failed, {} impossible, {} waiting; {}",
                                   count(PointState::kMeasured), results.points.size(),
                                   count(PointState::kRunFailed), count(PointState::kImpossible),
                                   count(PointState::kWaiting), store.ReportPath())
                            << std::endl;
}

StatusOr<int> Sweep(Invocation& invocation, const SweepOptions& options) {
  const Terminal& terminal = invocation.terminal();
  LH_ASSIGN_OR_RETURN(PreparedSweep sweep,
                      PrepareSweep(terminal, invocation.interrupt(), options.file,
                                   options.overrides, options.device));
  const std::vector<const SweepPoint*> impossible = Impossible(sweep);
  if (!impossible.empty()) {
    List(terminal, impossible);
    if (!options.keep_going) {
      return absl::FailedPreconditionError(fmt::format(
          "{} of {} points are impossible and nothing was started; mend them, or run the others "
          "with --keep-going",
          impossible.size(), sweep.jobs.size()));
    }
  }
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<ResultsStore> store,
                      ResultsStore::Open(options.out, sweep.fresh, options.retry_failed));
  LH_RETURN_IF_ERROR(store->Write());
  std::vector<SweepJob> jobs;
  for (size_t i = 0; i < sweep.jobs.size(); ++i) {
    if (store->results().points[i].state == PointState::kWaiting) {
      jobs.push_back(std::move(sweep.jobs[i]));
    }
  }
  if (store->goes_on()) {
    terminal.err << fmt::format("going on: {} of {} points are left", jobs.size(),
                                sweep.jobs.size())
                 << std::endl;
  }
  const Status run = RunPoints(invocation, sweep.spec, sweep.workers, options.out, jobs, *store);
  Conclude(invocation, *store);
  LH_RETURN_IF_ERROR(run);
  return store->results().Count(PointState::kMeasured) == store->results().points.size() ? kDone
                                                                                         : kFailed;
}

}  // namespace

CLI::App* AddSweepCommand(Program& program) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App* command = program.AddCommand(
      "sweep",
      "Try a run with many links, codecs and schedules on a local cluster of its own, each "
      "combination a run. Interrupted, the same command goes on. Needs root",
      [options](Invocation& invocation) { return Sweep(invocation, *options); });
  // It has its own.
  for (const char* flag : {"--coordinator", "--token-file"}) {
    command->remove_option(command->get_option(flag));
  }
  command->add_option("FILE", options->file, "The sweep file (YAML)")->required();
  command
      ->add_option("--out", options->out,
                   "Folder for results.json, results.csv and report.html, which are written anew "
                   "after every point")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--set", options->overrides,
                   "Override a key of the base run, such as --set train.steps=20; the value is "
                   "YAML; repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  AddWorkerDevices(command, &options->device);
  command->add_flag("--keep-going", options->keep_going,
                    "Where some points are impossible, run the others");
  command->add_flag("--retry-failed", options->retry_failed,
                    "Run points again that failed when the sweep ran before");
  return command;
}

}  // namespace longhaul::cli
