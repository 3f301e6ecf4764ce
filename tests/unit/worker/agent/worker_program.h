// longhaul-worker, asked for a device.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace longhaul::testing {

struct Refusal {
  int exit_code = -1;
  std::string sentence;
  bool made_state = false;
};

// `visible`: the worker's CUDA_VISIBLE_DEVICES; nullopt: this process's.
inline std::unique_ptr<Subprocess> StartWorkerOn(const std::string& device, const TempDir& folder,
                                                 const std::optional<std::string>& visible = {}) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "longhaul-worker";
  std::vector<std::string> command;
  if (visible) command = {"/usr/bin/env", "CUDA_VISIBLE_DEVICES=" + *visible};
  for (const std::string& word :
       {program.string(), std::string("--coordinator"), std::string("127.0.0.1:1"),
        std::string("--insecure"), std::string("--state-dir"), folder.path() + "/state",
        std::string("--device"), device}) {
    command.push_back(word);
  }
  auto worker = Subprocess::Start(command);
  EXPECT_TRUE(worker.ok()) << worker.status();
  return *std::move(worker);
}

inline Refusal RunWorkerOn(const std::string& device,
                           const std::optional<std::string>& visible = {}) {
  const TempDir folder;
  const auto worker = StartWorkerOn(device, folder, visible);
  const auto code = worker->WaitForExit(Deadline::After(absl::Minutes(2)));
  EXPECT_TRUE(code.has_value());
  return {code.value_or(-1), worker->standard_error(),
          std::filesystem::exists(folder.path() + "/state")};
}

}  // namespace longhaul::testing
