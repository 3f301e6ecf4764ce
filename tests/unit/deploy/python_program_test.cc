// Where parts of `longhaul` that are Python programs look for Python and for their sources.
#include "deploy/python_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const PythonPart kData = {
    .name = "data", .needs = "numpy", .check = "import numpy", .packages = "--data"};
const PythonPart kBare = {
    .name = "sweep", .needs = "nothing but itself", .check = "pass", .packages = ""};

class FindPythonProgramTest : public ::testing::Test {
 protected:
  // An empty file.
  void Touch(const std::string& name) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "";
  }
  PythonSearch Search(const std::string& program) {
    PythonSearch search;
    search.program = root_ / program;
    search.lacks = [this](const std::string& python) {
      asked_.push_back(python);
      return python == good_ ? "" : "no numpy";
    };
    return search;
  }

  testing::TempDir dir_;
  fs::path root_ = dir_.path();
  std::string good_ = "python3";
  std::vector<std::string> asked_;
};

TEST_F(FindPythonProgramTest, TheCheckoutAroundTheProgram) {
  Touch("deploy/data/main.py");
  Touch(".deps/venv/bin/python");
  good_ = root_ / ".deps/venv/bin/python";
  const StatusOr<PythonProgram> found =
      FindPythonProgram(kData, Search("build/release/bin/longhaul"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->main, root_ / "deploy/data/main.py");
  EXPECT_EQ(found->python, good_);
  // Where that one lacks packages, another may have them.
  good_ = "python3";
  EXPECT_EQ(FindPythonProgram(kData, Search("build/release/bin/longhaul"))->python, "python3");
}

TEST_F(FindPythonProgramTest, TheInstallationComesBeforeACheckout) {
  Touch("deploy/data/main.py");
  Touch("opt/share/longhaul/data/main.py");
  const StatusOr<PythonProgram> found = FindPythonProgram(kData, Search("opt/bin/longhaul"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->main, root_ / "opt/share/longhaul/data/main.py");
}

TEST_F(FindPythonProgramTest, VariablesComeFirstAndAreNotReplaced) {
  Touch("deploy/data/main.py");
  Touch("mine/main.py");
  PythonSearch search = Search("build/bin/longhaul");
  search.sources = root_ / "mine";
  search.python = "/my/python";
  good_ = "/my/python";
  const StatusOr<PythonProgram> found = FindPythonProgram(kData, search);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->main, root_ / "mine/main.py");
  EXPECT_EQ(found->python, "/my/python");
  good_ = "python3";
  asked_.clear();
  EXPECT_FALSE(FindPythonProgram(kData, search).ok());
  EXPECT_EQ(asked_, std::vector<std::string>{"/my/python"});
}

TEST_F(FindPythonProgramTest, WhatIsMissingIsSaidWithTheCommandThatBringsIt) {
  const Status nothing = FindPythonProgram(kData, Search("build/bin/longhaul")).status();
  EXPECT_THAT(std::string(Message(nothing)), HasSubstr("LONGHAUL_DATA_SOURCES"));
  Touch("deploy/data/main.py");
  Touch("deploy/setup.sh");
  good_ = "none";
  const Status lacks = FindPythonProgram(kData, Search("build/bin/longhaul")).status();
  EXPECT_THAT(std::string(Message(lacks)), HasSubstr("python3: no numpy"));
  EXPECT_THAT(std::string(Message(lacks)),
              HasSubstr((root_ / "deploy/setup.sh").string() + " --data"));
}

TEST_F(FindPythonProgramTest, APartThatNeedsNoPackageAsksForPythonAlone) {
  Touch("deploy/sweep/main.py");
  good_ = "none";
  const Status lacks = FindPythonProgram(kBare, Search("build/bin/longhaul")).status();
  EXPECT_THAT(std::string(Message(lacks)), HasSubstr("the package python3 of this system"));
}

}  // namespace
}  // namespace longhaul
