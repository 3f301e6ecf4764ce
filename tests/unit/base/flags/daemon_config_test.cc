#include "base/flags/daemon_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace longhaul {
namespace {

class DaemonConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    app_.add_option("--coordinator", coordinator_)->required();
    app_.add_option("--advertise", advertise_);
    app_.add_option("--threads", threads_)->check(CLI::Range(1, 64));
    app_.add_flag("--verbose", verbose_);
    AddYamlConfig(app_);
    file_ = ::testing::TempDir() + absl::StrCat("daemon_config.", getpid(), ".yaml");
  }
  void TearDown() override { std::filesystem::remove(file_); }

  // "" or the error's text.
  std::string Parse(const std::string& yaml, std::vector<std::string> arguments = {}) {
    std::ofstream(file_) << yaml;
    arguments.insert(arguments.end(), {"--config", file_});
    std::reverse(arguments.begin(), arguments.end());
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      EXPECT_NE(error.get_exit_code(), 0);
      return error.what();
    }
    return "";
  }

  CLI::App app_;
  std::string file_, coordinator_;
  std::vector<std::string> advertise_;
  int threads_ = 1;
  bool verbose_ = false;
};

TEST_F(DaemonConfig, KeysAreFlags) {
  EXPECT_EQ(Parse("coordinator: 10.0.0.1:7070\nadvertise: [a:1, b:2]\nthreads: 4\nverbose: true\n"),
            "");
  EXPECT_EQ(coordinator_, "10.0.0.1:7070");
  EXPECT_EQ(advertise_, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(threads_, 4);
  EXPECT_TRUE(verbose_);
}

TEST_F(DaemonConfig, TheCommandLineWins) {
  EXPECT_EQ(Parse("coordinator: from-file\nadvertise: a:1\nverbose: false\n",
                  {"--coordinator", "from-line"}),
            "");
  EXPECT_EQ(coordinator_, "from-line");
  EXPECT_EQ(advertise_, std::vector<std::string>{"a:1"});
  EXPECT_FALSE(verbose_);
}

TEST_F(DaemonConfig, AllErrorsWithTheirPlaces) {
  const std::string error =
      Parse("coordinater: x\nthreads: 65\nverbose: maybe\ncoordinator: [a, b]\nzebra: 1\n");
  EXPECT_TRUE(absl::StrContains(
      error, file_ + ":1:1: unknown key 'coordinater'; did you mean 'coordinator'?"))
      << error;
  EXPECT_TRUE(absl::StrContains(error, file_ + ":2:10: threads: ")) << error;
  EXPECT_TRUE(
      absl::StrContains(error, file_ + ":3:10: verbose: expected true or false, got 'maybe'"))
      << error;
  EXPECT_TRUE(absl::StrContains(error, file_ + ":4:14: coordinator: expected a value, got a list"))
      << error;
  EXPECT_TRUE(
      absl::StrContains(error, file_ + ":5:1: unknown key 'zebra'; the keys are coordinator"))
      << error;
}

TEST_F(DaemonConfig, WrongTypesAndFilesThatAreNoMappings) {
  EXPECT_TRUE(absl::StrContains(Parse("coordinator: x\nthreads: many\n"), ":2:10: threads: "));
  EXPECT_TRUE(absl::StrContains(Parse("[a"), "not valid YAML"));
  EXPECT_TRUE(absl::StrContains(Parse("hello\n"), ":1:1: the file: expected a mapping with "));
}

TEST_F(DaemonConfig, AMissingFileIsAnError) {
  EXPECT_THROW(app_.parse(std::vector<std::string>{"/nowhere.yaml", "--config"}), CLI::ParseError);
}

}  // namespace
}  // namespace longhaul
