#include "cli/step_files.h"

#include <fmt/core.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "cli/event_file.h"
#include "coordinator/view/json.h"

namespace longhaul::cli {

StatusOr<std::ofstream> StepFiles::Create(const std::string& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return FromErrno(fmt::format("cannot write {}", path), errno);
  paths_.push_back(path);
  return file;
}

StatusOr<StepFiles> StepFiles::Open(const std::string& lines, const std::string& tensorboard,
                                    const v1::RunStatus& run) {
  StepFiles files;
  if (!lines.empty()) {
    LH_ASSIGN_OR_RETURN(files.lines_, files.Create(lines));
  }
  if (tensorboard.empty()) return files;
  const int64_t began = run.started_unix_ms() > 0 ? run.started_unix_ms() : run.submitted_unix_ms();
  files.unix_seconds_ = static_cast<double>(began) / 1e3;
  // No coordinator shall make this write elsewhere.
  LH_RETURN_IF_ERROR(CheckFileName("the run's id", run.run_id()));
  const std::string folder = fmt::format("{}/{}", tensorboard, run.run_id());
  LH_RETURN_IF_ERROR(MakeDirectories(folder));
  // TensorBoard takes files whose names have "tfevents", and sorts a folder's by name.
  LH_ASSIGN_OR_RETURN(files.events_, files.Create(fmt::format("{}/events.out.tfevents.{}.{}",
                                                              folder, began / 1000, run.run_id())));
  files.events_ << FirstRecord(files.unix_seconds_);
  return files;
}

void StepFiles::Add(const v1::StepRecord& step) {
  unix_seconds_ += step.seconds();
  if (lines_.is_open()) lines_ << ToJson(step, /*indented=*/false) << '\n';
  if (events_.is_open()) {
    const std::vector<Scalar> scalars = ScalarsOf(step);
    if (!scalars.empty()) events_ << EventRecord(unix_seconds_, step.step(), scalars);
  }
}

Status StepFiles::Flush() {
  for (std::ofstream* file : {&lines_, &events_}) {
    if (!file->is_open()) continue;
    errno = 0;
    if (!file->flush()) {
      return FromErrno(fmt::format("cannot write {}", absl::StrJoin(paths_, ", ")), errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace longhaul::cli
