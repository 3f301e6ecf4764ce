// A command of `longhaul` run in this process against a coordinator in this process: its output for
// people, for pipes and for machines, its exit code, what it says when something is wrong.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/program.h"
#include "deploy/local_commands.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/fake_control.h"

namespace longhaul::cli {

inline constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
inline constexpr char kRunFile[] = R"(name: tiny
model: { layers: 2, hidden: 16, heads: 2, context: 8 }
data: { text: [corpus/*.txt] }
train: { steps: 20, microbatches: 4 }
links: { forward: none, backward: none }
)";

struct Outcome {
  int code = -1;
  std::string out, err;
};

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"LONGHAUL_COORDINATOR", "LONGHAUL_TOKEN_FILE"}) unsetenv(name);
    // What is shown here is the same with TLS, which the coordinator of these tests has not.
    setenv("LONGHAUL_INSECURE", "1", 1);
    // No cluster of this machine is found here.
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    std::filesystem::create_directory(Path("corpus"));
    Write("corpus/a.txt", std::string(2000, 'a'));
    Write("corpus/b.txt", std::string(3'000'000, 'b'));
    Write("corpus/c.txt", std::string(2000, 'a'));
    Write("run.yaml", kRunFile);
    Write("token", kToken);
    std::filesystem::permissions(Path("token"), std::filesystem::perms(0600));
  }
  void TearDown() override { control_.Stop(); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  Outcome Run(std::vector<std::string> arguments, bool terminal = false) {
    std::ostringstream out, err;
    Terminal where{out, err};
    where.out_is_terminal = where.err_is_terminal = terminal;
    where.size = [] { return WindowSize{200, 50}; };
    arguments.insert(arguments.begin(), "longhaul");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    Program program(where, ClustersOfThisMachine());
    AddLocalCommands(program);
    const int code = program.Run(static_cast<int>(argv.size()), argv.data());
    return {code, out.str(), err.str()};
  }
  // With the coordinator of this test.
  Outcome Ask(std::vector<std::string> arguments, bool terminal = false) {
    if (control_.port() == 0) control_.Start();
    arguments.insert(arguments.end(), {"--coordinator", control_.address()});
    return Run(std::move(arguments), terminal);
  }

  static v1::RunStatus State(const std::string& state, uint64_t step) {
    v1::RunStatus run;
    run.set_run_id("tiny-abc123");
    run.set_name("tiny");
    run.set_state(state);
    run.set_step(step);
    run.set_steps(20);
    run.set_loss(2.5);
    return run;
  }

  ::longhaul::testing::TempDir folder_;
  FakeControl control_;
};

}  // namespace longhaul::cli
