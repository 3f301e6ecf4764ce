// Ranks in processes of their own, of which one is killed in the middle of each operation.
#include <absl/time/clock.h>
#include <signal.h>

#include <filesystem>

#include "tests/conformance/collective/collective_test.h"
#include "tests/support/subprocess.h"

namespace longhaul::collective {
namespace {

using ::testing::HasSubstr;
using testing::Subprocess;

// Beside this one.
std::string RankProgram() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / COLLECTIVE_RANK;
}

class KilledRankTest : public CollectiveTest {
 protected:
  void Start(const std::string& call) {
    ranks_.clear();
    std::string id;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      auto started = Subprocess::Start(
          {RankProgram(), backend().name, std::to_string(size()), std::to_string(rank), call, id});
      ASSERT_TRUE(started.ok()) << started.status();
      ranks_.push_back(*std::move(started));
      if (rank > 0) continue;
      ASSERT_TRUE(ranks_[0]->WaitForOutput("id ", Deadline::After(kPatience)));
      const std::string& said = ranks_[0]->standard_output();
      id = said.substr(3, said.find('\n') - 3);
    }
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->WaitForOutput("ready", Deadline::After(kPatience)))
          << rank->standard_output() << rank->standard_error();
    }
  }
  void KillAndCheck(uint32_t victim, absl::Duration after) {
    absl::SleepFor(after);
    const MonoTime killed = Now();
    ranks_[victim]->Signal(SIGKILL);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks_[rank]->WaitForExit(Deadline::After(kPatience)), 0);
      EXPECT_LE(Now() - killed, EndLimit());
      EXPECT_THAT(ranks_[rank]->standard_output(),
                  HasSubstr(fmt::format("ABORTED: rank {} was lost: its process {}", victim,
                                        ranks_[victim]->pid())));
    }
  }

  std::vector<std::unique_ptr<Subprocess>> ranks_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KilledRankTest);
INSTANTIATE_TEST_SUITE_P(Backend, KilledRankTest, ::testing::ValuesIn(WithSizes({2, 3})), NameOf);

TEST_P(KilledRankTest, IsNamedByTheOthers) {
  int milliseconds = 0;
  for (const NamedCall& call : CallsOf(backend())) {
    SCOPED_TRACE(call.name);
    ASSERT_NO_FATAL_FAILURE(Start(call.name));
    KillAndCheck(size() - 1, absl::Milliseconds(milliseconds += 3));
  }
}

TEST_P(KilledRankTest, IsNamedByTheOthersAlsoIfItHasTheRendezvous) {
  for (const NamedCall& call : CallsOf(backend())) {
    SCOPED_TRACE(call.name);
    ASSERT_NO_FATAL_FAILURE(Start(call.name));
    KillAndCheck(0, absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace longhaul::collective
