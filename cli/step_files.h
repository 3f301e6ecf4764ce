// Writes a run's steps to files on the user's machine: one JSON object a line, and TensorBoard's
// event files. The coordinator does not write them, because it may be another machine, and another
// user's.
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
  // `lines`: a path. `tensorboard`: a folder, in which the run gets a folder named by its id.
  // Empty: no such file. kInvalidArgument, or the system's error for a path that cannot be written.
  static StatusOr<StepFiles> Open(const std::string& lines, const std::string& tensorboard,
                                  const v1::RunStatus& run);

  // Call it in the order of steps.
  void Add(const v1::StepRecord& step);
  // Makes the added steps readable, or returns why some could not be written.
  Status Flush();
  // Paths, for people.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  StatusOr<std::ofstream> Create(const std::string& path);

  std::vector<std::string> paths_;
  std::ofstream lines_, events_;
  // TensorBoard's time: the run's beginning plus the time of its steps so far.
  double unix_seconds_ = 0;
};

}  // namespace longhaul::cli
