// A worker obeys some commands and refuses others, and remembers its leader in a file.
#include "worker/agent/obedience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/term_file.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

const std::string kTenure(16, '\x7f');
const std::string kOther(16, '\x01');

v1::WorkerCommand From(uint64_t term, const std::string& tenure, uint64_t change = 0) {
  v1::WorkerCommand command;
  command.set_term(term);
  command.set_tenure(tenure);
  command.set_change(change);
  return command;
}

Obeyed Seven() {
  return {.term = 7, .tenure = kTenure, .address = "h:7070", .change = 812};
}

TEST(Obedience, ANewerTermIsStoredFirst) {
  EXPECT_EQ(ObedienceTo({}, From(1, kTenure)), Obedience::kObeyOnceStored);
  EXPECT_EQ(ObedienceTo(Seven(), From(8, kOther)), Obedience::kObeyOnceStored);
  EXPECT_EQ(ObedienceTo(Seven(), From(7, kTenure)), Obedience::kObey);
}

TEST(Obedience, OlderTermsAndOtherTenuresAreRefused) {
  EXPECT_EQ(ObedienceTo(Seven(), From(6, kTenure)), Obedience::kRefuse);
  EXPECT_THAT(WhyRefused(Seven(), From(6, kTenure)),
              HasSubstr("has term 6, but one of term 7 has taken over from it"));
  EXPECT_EQ(ObedienceTo(Seven(), From(7, kOther)), Obedience::kRefuse);
  EXPECT_THAT(WhyRefused(Seven(), From(7, kOther)),
              HasSubstr("has term 7, as another coordinator that this worker obeys: h:7070"));
  EXPECT_THAT(WhyRefused(Seven(), From(0, "")), HasSubstr("has no term"));
}

TEST(Obedience, TheNewestChangeIsOfTheLeaderThatIsObeyed) {
  EXPECT_EQ(ObeyedAfter(Seven(), From(7, kTenure, 900), "h:7070").change, 900u);
  EXPECT_EQ(ObeyedAfter(Seven(), From(7, kTenure, 3), "h:7070").change, 812u);
  const Obeyed next = ObeyedAfter(Seven(), From(8, kOther, 3), "i:7070");
  EXPECT_EQ(next, (Obeyed{.term = 8, .tenure = kOther, .address = "i:7070", .change = 3}));
  v1::Hello hello;
  SayObeyed(next, &hello);
  EXPECT_EQ(hello.term(), 8u);
  EXPECT_EQ(hello.tenure(), kOther);
  EXPECT_EQ(hello.leader_address(), "i:7070");
  EXPECT_EQ(hello.change(), 3u);
}

class TermFileTest : public ::testing::Test {
 protected:
  TermFile Open() const {
    StatusOr<TermFile> file = TermFile::Open(folder_.path());
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : TermFile::InMemory();
  }
  std::string path() const { return folder_.path() + "/term"; }

  ::longhaul::testing::TempDir folder_;
  MonoTime now_ = MonoTime() + absl::Hours(1);
};

TEST_F(TermFileTest, ALeaderIsOnDiskBeforeItIsObeyed) {
  TermFile file = Open();
  EXPECT_EQ(file.obeyed(), Obeyed());
  ASSERT_TRUE(file.Keep(Seven(), now_).ok());
  EXPECT_EQ(Open().obeyed(), Seven());
}

TEST_F(TermFileTest, ChangesAreWrittenNowAndThen) {
  TermFile file = Open();
  ASSERT_TRUE(file.Keep(Seven(), now_).ok());
  Obeyed later = Seven();
  later.change = 900;
  ASSERT_TRUE(file.Keep(later, now_ + absl::Seconds(1)).ok());
  EXPECT_EQ(file.obeyed().change, 900u);
  EXPECT_EQ(Open().obeyed().change, 812u);
  ASSERT_TRUE(file.Keep(later, now_ + absl::Seconds(11)).ok());
  EXPECT_EQ(Open().obeyed().change, 900u);
}

TEST_F(TermFileTest, ALeaderThatCannotBeStoredIsNotTakenOver) {
  TermFile file = Open();
  ASSERT_TRUE(file.Keep(Seven(), now_).ok());
  std::filesystem::remove_all(folder_.path());
  Obeyed next = Seven();
  next.term = 8;
  EXPECT_THAT(std::string(Message(file.Keep(next, now_))), HasSubstr("once it is stored"));
  EXPECT_EQ(file.obeyed(), Seven());
  // A change number is worth no error.
  Obeyed later = Seven();
  later.change = 900;
  EXPECT_TRUE(file.Keep(later, now_ + absl::Minutes(1)).ok());
}

TEST_F(TermFileTest, ADamagedFileIsNamed) {
  for (const char* text :
       {"", "{}", "[]", "{\"term\": -1}", R"({"term":1,"tenure":"xy","address":"","change":0})"}) {
    ASSERT_TRUE(WriteFileAtomic(path(), text).ok());
    const Status status = TermFile::Open(folder_.path()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << text << ": " << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(path())) << text;
  }
}

}  // namespace
}  // namespace longhaul::worker
