// `longhaul trace`.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/printable.h"
#include "cli/program.h"
#include "coordinator/view/chrome_trace.h"

namespace longhaul::cli {
namespace {

struct TraceOptions {
  std::string run;
  std::string out;
  uint32_t steps = 0;
};

constexpr absl::Duration kLimit = absl::Seconds(30);

StatusOr<int> Trace(Invocation& invocation, const TraceOptions& options) {
  v1::TraceRequest request;
  request.set_run(options.run);
  request.set_steps(options.steps);
  LH_ASSIGN_OR_RETURN(const v1::TraceReply reply,
                      invocation.Get(&v1::ControlService::Stub::TraceRun, request, kLimit));
  const std::string text = ToChromeTrace(reply);
  if (options.out == "-") {
    invocation.terminal().out << text;
    return kDone;
  }
  LH_RETURN_IF_ERROR(WriteFileAtomic(options.out, text));
  uint64_t first = UINT64_MAX, last = 0;
  for (const v1::StageTrace& stage : reply.stages()) {
    if (stage.steps().empty()) continue;
    first = std::min<uint64_t>(first, stage.steps(0).step());
    last = std::max<uint64_t>(last, stage.steps(stage.steps_size() - 1).step());
  }
  invocation.terminal().out << fmt::format(
      "{}: steps {} to {} of {}, {} stages. Open it at https://ui.perfetto.dev or in "
      "chrome://tracing.\n",
      options.out, first, last, Printable(reply.run_id()), reply.stages_size());
  return kDone;
}

}  // namespace

void AddTraceCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "trace", "Write what every stage and link did when, in the last steps of a run", Trace);
  AddRunArgument(command, &options->run);
  command->add_option("-o,--out", options->out, "The file to write; - for standard output")
      ->required();
  command->add_option("--steps", options->steps, "Number of last steps; 0: all that are kept (8)")
      ->capture_default_str();
  command->footer(
      "The file has Chrome's trace format: a row for each stage, each stage's codec and each\n"
      "direction of a link. Workers keep their last steps until they begin another run.");
}

}  // namespace longhaul::cli
