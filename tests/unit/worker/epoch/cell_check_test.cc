#include "worker/epoch/cell_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CellCheck : public ::testing::Test {
 protected:
  CellCheck() {
    cell_.layers = {0, 2};
    cell_.roles = {.embedding = true, .head = true};
  }
  void Offer(std::initializer_list<const char*> kinds) {
    for (const char* kind : kinds) offered_.emplace_back().description.set_kind(kind);
  }
  std::vector<std::string> ProblemsOf(Group group, std::vector<uint32_t> devices) {
    cell_.group = group;
    cell_.devices = std::move(devices);
    Assignment assignment;
    assignment.cells = {cell_};
    return CannotDo(assignment, cell_, offered_);
  }

  Cell cell_;
  std::vector<WorkerDevice> offered_;
};

TEST_F(CellCheck, ARankHasADevice) {
  Offer({"cuda", "cuda", "cuda"});
  EXPECT_THAT(ProblemsOf({.tensor = 1}, {0}), IsEmpty());
  EXPECT_THAT(ProblemsOf({.tensor = 2}, {0, 2}), IsEmpty());
  EXPECT_THAT(ProblemsOf({.tensor = 3}, {2, 0, 1}), IsEmpty());
  EXPECT_THAT(ProblemsOf({.tensor = 3}, {0, 1}),
              ElementsAre(HasSubstr("got 2 for 3 tensor ranks")));
  EXPECT_THAT(ProblemsOf({.tensor = 1}, {}), ElementsAre(HasSubstr("got 0 for 1 tensor ranks")));
  EXPECT_THAT(ProblemsOf({.tensor = 0}, {}), ElementsAre(HasSubstr("got 0 for 0 tensor ranks")));
}

TEST_F(CellCheck, DevicesAreOffered) {
  Offer({"cpu", "cpu"});
  EXPECT_THAT(
      ProblemsOf({.tensor = 2}, {1, 2}),
      ElementsAre(HasSubstr("expected stage 0 to take one of the 2 devices that this worker "
                            "offers, counted from 0, got device 2")));
}

TEST_F(CellCheck, NoDeviceIsTakenTwice) {
  Offer({"cpu", "cpu"});
  EXPECT_THAT(ProblemsOf({.tensor = 2}, {1, 1}),
              ElementsAre(HasSubstr("devices of one kind, each once, got 1, 1 of the kinds cpu")));
}

TEST_F(CellCheck, DevicesAreOfOneKind) {
  Offer({"cuda", "cpu"});
  EXPECT_THAT(ProblemsOf({.tensor = 2}, {0, 1}), ElementsAre(HasSubstr("of the kinds cpu, cuda")));
}

TEST_F(CellCheck, PartsOfExpertsDivideTheRanks) {
  Offer({"cuda", "cuda"});
  EXPECT_THAT(ProblemsOf({.tensor = 2, .expert = 2}, {0, 1}), IsEmpty());
  for (const uint32_t parts : {0u, 3u, 4u}) {
    EXPECT_THAT(ProblemsOf({.tensor = 2, .expert = parts}, {0, 1}),
                ElementsAre(HasSubstr("that divides its 2 tensor ranks")));
  }
}

}  // namespace
}  // namespace longhaul::worker
