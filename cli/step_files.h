// Writes a run's steps to files on the user's machine: one JSON object a line, and TensorBoard's
// event files. The coordinator does not write them, because it may run on another machine and as
// another user.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

// Threads: one. Files are written from scratch, so the same command gives the same files.
class StepFiles {
 public:
  // `lines` is the path of the file of JSON objects. `tensorboard` is a folder in which the run
  // gets a folder named by its id. An empty text: no such file. Errors: the system's for a path
  // that cannot be written, and kInvalidArgument for an id that cannot be a folder's name.
  static StatusOr<StepFiles> Open(const std::string& lines, const std::string& tensorboard,
                                  const v1::RunStatus& run);

  // Call it in the order of steps.
  void Add(const v1::StepRecord& step);
  // Writes the added steps out, so that other programs can read them. The error says why some could
  // not be written.
  Status Flush();
  // The paths of the files.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  StatusOr<std::ofstream> Create(const std::string& path);

  std::vector<std::string> paths_;
  std::ofstream lines_, events_;
  // The time that TensorBoard shows: the run's beginning plus the durations of its steps so far.
  double unix_seconds_ = 0;
};

}  // namespace longhaul::cli
