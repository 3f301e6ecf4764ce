// `longhaul steps --wandb --mlflow`: what the Python program gets, and what is said when it fails.
// A script stands in for the program, and empty modules for the packages.
#include <nlohmann/json.hpp>

#include "deploy/steps/step_log.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Writes its arguments and its input into files beside it.
constexpr char kRecorder[] = R"(import pathlib, sys
folder = pathlib.Path(__file__).parent
(folder / "arguments").write_text(" ".join(sys.argv[1:]))
with open(folder / "lines", "w") as lines:
    lines.write(sys.stdin.readline())
    print("at W&B: https://w\nready ", flush=True)
    lines.writelines(sys.stdin)
print("logged W&B: all", flush=True)
)";

class StepsLogTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    std::filesystem::create_directory(Path("program"));
    std::filesystem::create_directory(Path("packages"));
    Write("packages/wandb.py", "");
    setenv("LONGHAUL_STEPS_SOURCES", Path("program").c_str(), 1);
    setenv("LONGHAUL_PYTHON", "/usr/bin/python3", 1);
    setenv("PYTHONPATH", Path("packages").c_str(), 1);
    control_.runs = {State("done", 3)};
    control_.runs[0].set_run_id("a");
    control_.runs[0].mutable_plan()->mutable_assignment()->set_run_yaml(kRunFile);
    for (uint64_t number = 1; number <= 3; ++number) {
      v1::StepRecord step;
      step.set_step(number);
      step.set_loss(1.0 / static_cast<double>(number));
      control_.steps.push_back(step);
    }
  }
  void TearDown() override {
    for (const char* name : {"LONGHAUL_STEPS_SOURCES", "LONGHAUL_PYTHON", "PYTHONPATH"}) {
      unsetenv(name);
    }
    CliTest::TearDown();
  }
  Outcome Log(const std::string& program, std::vector<std::string> flags = {}) {
    Write("program/main.py", program);
    std::vector<std::string> arguments = {"steps", "a", "--wandb", "p"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return Ask(arguments);
  }
  // Lines that the program got, but for empty ones.
  std::vector<std::string> Lines() {
    std::ifstream file(Path("program/lines"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
};

TEST_F(StepsLogTest, TheProgramGetsTheRunAndTheRowsOfJson) {
  const Outcome logged = Log(kRecorder);
  EXPECT_EQ(logged.code, 0) << logged.err;
  EXPECT_EQ(logged.out, "W&B: all\n");
  EXPECT_EQ(logged.err, "W&B: https://w\n");
  std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  const auto run = nlohmann::json::parse(lines[0])["run"];
  EXPECT_EQ(run["id"], "a");
  EXPECT_EQ(run["run_file"], kRunFile);
  EXPECT_EQ(run["tokens_of_replica"], 4 * 8);
  EXPECT_EQ(run["ended"], true);
  EXPECT_EQ(lines[1] + "\n" + lines[2] + "\n" + lines[3] + "\n", Ask({"steps", "a", "--json"}).out);
}

// Its validation may come, and trackers keep the first record of a step.
TEST_F(StepsLogTest, TheNewestStepOfARunUnderWayIsLeftForTheNextCall) {
  control_.runs[0].set_state("running");
  EXPECT_EQ(Log(kRecorder, {"--file", Path("rows")}).out,
            "a: 3 records in " + Path("rows") + "\nW&B: all\n");
  EXPECT_EQ(Lines().size(), 3u);
}

TEST_F(StepsLogTest, WhatChangesOfTheRunComesToo) {
  control_.runs[0].set_state("queued");
  control_.runs[0].clear_plan();
  int calls = 0;
  control_.before_get_run = [&] {
    if (++calls < 3) return;
    control_.runs[0].set_state("done");
    control_.runs[0].mutable_plan()->mutable_assignment()->set_run_yaml(kRunFile);
  };
  EXPECT_EQ(Log(kRecorder, {"--follow"}).code, 0);
  std::vector<std::string> kinds;
  for (const std::string& line : Lines()) {
    const auto json = nlohmann::json::parse(line);
    kinds.push_back(json.contains("run") ? json["run"]["state"].get<std::string>()
                                         : json["step"].dump());
  }
  EXPECT_THAT(kinds, ElementsAre("queued", "1", "2", "done", "3"));
}

TEST_F(StepsLogTest, ArgumentsAreWordsWhateverTheyHave) {
  Write("packages/mlflow.py", "");
  EXPECT_EQ(Log(kRecorder, {"--mlflow", "file:///a b; c"}).code, 0);
  std::ifstream file(Path("program/arguments"));
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "--wandb=p --mlflow=file:///a b; c");
}

TEST_F(StepsLogTest, APackageThatIsMissingIsNamedAndNothingIsStarted) {
  const Outcome said = Log(kRecorder, {"--mlflow", "file:///x", "--file", Path("rows")});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.err, StartsWith("expected a Python that has wandb and mlflow; /usr/bin/python3: "
                                   "no module named mlflow. Install them: "));
  EXPECT_FALSE(std::filesystem::exists(Path("program/lines")));
  EXPECT_FALSE(std::filesystem::exists(Path("rows")));
}

TEST_F(StepsLogTest, ReasonsOfTheProgramAreThoseOfTheCommand) {
  const Outcome refused = Log("print('error W&B: no login')\n");
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err, "W&B: no login\n");
  const Outcome late =
      Log("import sys\nprint('ready', flush=True, end=' \\n')\nsys.stdin.read()\n"
          "print('error W&B: the disk is full')\nsys.exit(1)\n");
  EXPECT_EQ(late.code, 1);
  EXPECT_EQ(late.err, "W&B: the disk is full\n");
}

// The pipe breaks while the run is followed.
TEST_F(StepsLogTest, AProgramThatDiesEndsTheCommand) {
  control_.runs[0].set_state("running");
  const std::string ready = "print('ready ', flush=True)\n";
  const Outcome killed = Log(ready + "import os\nos.kill(os.getpid(), 9)\n", {"--follow"});
  EXPECT_EQ(killed.code, 1);
  EXPECT_THAT(killed.err,
              HasSubstr("ended with exit code 137 and no reason; the run is not touched"));
  const Outcome said = Log(ready + "print('error W&B: gone')\n", {"--follow"});
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.err, "W&B: gone\n");
  EXPECT_THAT(Log("", {"--follow"}).err, HasSubstr("ended with exit code 0 and no reason"));
}

TEST_F(StepsLogTest, FlagsThatDoNotGoTogether) {
  EXPECT_THAT(Log(kRecorder, {"--after", "2"}).err, StartsWith("--after is not for --wandb"));
  EXPECT_EQ(Run({"steps", "a", "--mlflow", ""}).code, 2);
}

TEST(StepsPartTest, OnlyThePackagesThatAreNeeded) {
  EXPECT_EQ(StepsPart({.wandb = "p", .mlflow = ""}).needs, "wandb");
  EXPECT_EQ(StepsPart({.wandb = "", .mlflow = "u"}).needs, "mlflow");
  EXPECT_THAT(StepsPart({.wandb = "", .mlflow = "u"}).check, Not(HasSubstr("wandb")));
}

}  // namespace
}  // namespace longhaul::cli
