// longhaul-worker, asked for a device.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace longhaul::testing {

struct Refusal {
  int exit_code = -1;
  std::string sentence;
  bool made_state = false;
};

inline std::unique_ptr<Subprocess> StartWorkerOn(const std::string& device, const TempDir& folder) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "longhaul-worker";
  auto worker = Subprocess::Start({program, "--coordinator", "127.0.0.1:1", "--insecure",
                                   "--state-dir", folder.path() + "/state", "--device", device});
  EXPECT_TRUE(worker.ok()) << worker.status();
  return *std::move(worker);
}

inline Refusal RunWorkerOn(const std::string& device) {
  const TempDir folder;
  const auto worker = StartWorkerOn(device, folder);
  const auto code = worker->WaitForExit(Deadline::After(absl::Minutes(2)));
  EXPECT_TRUE(code.has_value());
  return {code.value_or(-1), worker->standard_error(),
          std::filesystem::exists(folder.path() + "/state")};
}

}  // namespace longhaul::testing
