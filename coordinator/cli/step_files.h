// A run's steps in files on the user's machine, for those who compare runs: a JSON object a line,
// and TensorBoard's event files. The coordinator writes no file that a user names: it may be
// another machine and another user's.
#ifndef LONGHAUL_COORDINATOR_CLI_STEP_FILES_H_
#define LONGHAUL_COORDINATOR_CLI_STEP_FILES_H_

#include <fstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

// From one thread. Files are written anew, so the same command makes the same files.
class StepFiles {
 public:
  // `lines`: a path. `tensorboard`: a folder, in which the run gets one of its own, named by its
  // id. Empty: none. kInvalidArgument and what the system says of a path that cannot be written.
  static StatusOr<StepFiles> Open(const std::string& lines, const std::string& tensorboard,
                                  const v1::RunStatus& run);

  // In the order of the steps.
  void Add(const v1::StepRecord& step);
  // What was added can be read now; or why some of it could not be written.
  Status Flush();
  // Paths, for people.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  StatusOr<std::ofstream> Create(const std::string& path);

  std::vector<std::string> paths_;
  std::ofstream lines_, events_;
  // TensorBoard's clock: the beginning of the run, and the time that its steps took since.
  double unix_seconds_ = 0;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_STEP_FILES_H_
