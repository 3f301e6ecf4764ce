#include "deploy/sweep/sweep_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/client.h"
#include "deploy/cluster/cluster_command.h"
#include "deploy/python_program.h"
#include "deploy/sweep/prediction.h"
#include "deploy/sweep/prepare.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::cli {
namespace {

struct SweepOptions {
  std::string file;
  std::string out;
  std::string device = "cpu";
  std::vector<std::string> overrides;
  std::vector<std::string> python_codecs;
  bool keep_going = false;
  bool retry_failed = false;
  bool curves = false;  // losses alone
};

PythonPart SweepPart() {
  return {.name = "sweep",
          .needs = "version 3.9 or newer",
          .check = "import sys; assert sys.version_info >= (3, 9)",
          .packages = ""};
}

// Lists points that are impossible; their number.
size_t ListImpossible(const Terminal& terminal, const SweepPlan& plan) {
  size_t count = 0;
  for (const SweepPoint& point : plan.points) {
    if (point.impossible.empty()) continue;
    terminal.err << fmt::format("{}: {}", point.id, PrintableLines(point.impossible)) << std::endl;
    ++count;
  }
  return count;
}

// Becomes the Python that runs the sweep. Returns only if that fails.
StatusOr<int> Sweep(Invocation& invocation, const SweepOptions& options) {
  LH_ASSIGN_OR_RETURN(const PreparedSweep sweep,
                      PrepareSweep(invocation.terminal(), invocation.interrupt(), options.file,
                                   options.overrides, options.device, !options.curves));
  const size_t impossible = ListImpossible(invocation.terminal(), sweep.plan);
  if (impossible > 0 && !options.keep_going) {
    return FailedPrecondition(
        "{} of {} points are impossible and nothing was started; mend them, or run the others "
        "with --keep-going",
        impossible, sweep.plan.points.size());
  }
  std::error_code error;
  std::vector<std::string> arguments = {
      "--program", std::filesystem::read_symlink("/proc/self/exe", error).string(),
      "--out",     options.out,
      "--device",  options.device};
  if (options.retry_failed) arguments.emplace_back("--retry-failed");
  if (options.curves) arguments.emplace_back("--curves");
  for (const std::string& module : options.python_codecs) {
    arguments.insert(arguments.end(), {"--python-codec", module});
  }
  if (invocation.json()) arguments.emplace_back("--json");
  if (invocation.interrupt().fired()) return absl::CancelledError("interrupted");
  return RunPythonProgram(SweepPart(), arguments, ToJson(sweep));
}

struct PredictionOptions {
  std::string run, rate, delay;
};

// What a run's plan takes on links that are all alike, as JSON: the run of a point asks for it.
StatusOr<int> ShowPrediction(Invocation& invocation, const PredictionOptions& options) {
  LH_ASSIGN_OR_RETURN(const uint64_t rate, ParseLinkRate(options.rate));
  LH_ASSIGN_OR_RETURN(const absl::Duration delay, ParseLinkDelay(options.delay));
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, client->GetRun(options.run));
  const Plan plan = FromProto(run.plan());
  LH_ASSIGN_OR_RETURN(const RunSpec spec, ParseRunSpec(plan.assignment.run_yaml, options.run, {}));
  LH_ASSIGN_OR_RETURN(const PointPrediction prediction, PredictPoint(plan, spec, rate, delay));
  const nlohmann::json document = {{"simulated_seconds", prediction.simulated_seconds},
                                   {"bound_seconds", prediction.bound_seconds},
                                   {"floor_seconds", prediction.floor_seconds},
                                   {"bottleneck", prediction.bottleneck}};
  invocation.terminal().out << document.dump() << '\n';
  return kDone;
}

void AddPredictionCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "sweep-prediction", "Predict the step of a run's plan on links that are all alike",
      ShowPrediction);
  command->group("");  // sweeps and benchmarks call it
  command->add_option("RUN", options->run, "The run's id")->required();
  command->add_option("--rate", options->rate, "Rate of every link, each way")->required();
  command->add_option("--delay", options->delay, "One-way delay of every link")->required();
}

}  // namespace

namespace {

// What `sweep` and `curves` both have.
void AddSweepOptions(CLI::App* command, SweepOptions* options) {
  // Its cluster is its own.
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
  command
      ->add_option("--python-codec", options->python_codecs,
                   "A module of Python whose classes the workers may run as codecs, "
                   "python:MODULE:CLASS; searched in the current folder first; repeatable")
      ->type_name("MODULE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--keep-going", options->keep_going,
                    "Where some points are impossible, run the others");
  command->add_flag("--retry-failed", options->retry_failed,
                    "Run points again that failed when the sweep ran before");
}

}  // namespace

CLI::App* AddSweepCommand(Program& program) {
  AddPredictionCommand(program);
  const auto [command, options] = program.AddCommand(
      "sweep",
      "Try a run with many links, codecs and schedules on a local cluster of its own, each "
      "combination a run. Interrupted, the same command goes on. Needs root, unless FILE has no "
      "rates",
      Sweep);
  AddSweepOptions(command, options);
  return command;
}

CLI::App* AddCurvesCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "curves",
      "Train a run with several pairs of codecs on this machine, one after the other, and compare "
      "the losses: a sweep whose FILE has no rates. Interrupted, the same command goes on",
      Sweep);
  options->curves = true;
  AddSweepOptions(command, options);
  return command;
}

}  // namespace longhaul::cli
