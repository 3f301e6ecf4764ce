// Names of assignments and secrets of links.
#include "coordinator/state/workers/secrets.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace longhaul::coordinator {
namespace {

const Lead kLead{.term = 3, .tenure = Tenure(std::string(16, 't'))};
const Lead kOther{.term = 3, .tenure = Tenure(std::string(16, 'u'))};

Assignment Small() {
  Assignment assignment;
  assignment.run = RunId("tiny-1");
  assignment.epoch = Epoch(4);
  assignment.cells.emplace_back().worker = WorkerId("id-a");
  return assignment;
}

std::string HashOf(const Lead& lead, Assignment assignment) {
  SealAssignment(lead, &assignment);
  EXPECT_TRUE(IsSealed(assignment));
  EXPECT_EQ(assignment.term, lead.term);
  EXPECT_EQ(assignment.tenure, lead.tenure);
  return assignment.hash;
}

TEST(Secrets, AHashNamesAllThatIsDecidedAndByWhom) {
  std::set<std::string> hashes{HashOf(kLead, Small()), HashOf(kOther, Small()),
                               HashOf({.term = 4, .tenure = kLead.tenure}, Small())};
  Assignment other = Small();
  other.start_step = 48;
  hashes.insert(HashOf(kLead, other));
  other = Small();
  other.cells.front().worker = WorkerId("id-b");
  hashes.insert(HashOf(kLead, other));
  other = Small();
  other.epoch = Epoch(5);
  hashes.insert(HashOf(kLead, other));
  EXPECT_EQ(hashes.size(), 6u);
  EXPECT_FALSE(IsSealed(Small()));
}

TEST(Secrets, TheHashBeforeDoesNotCount) {
  Assignment sealed = Small();
  SealAssignment(kOther, &sealed);
  EXPECT_EQ(HashOf(kLead, sealed), HashOf(kLead, Small()));
}

TEST(Secrets, NoTwoLinksShareASecret) {
  const std::string run = "secret of the run";
  std::set<std::string> secrets;
  size_t made = 0;
  for (const std::string& hash : {HashOf(kLead, Small()), HashOf(kOther, Small())}) {
    secrets.insert(LinksSecret(run, hash));
    for (const uint32_t edge : {0u, 1u, 11u}) secrets.insert(EdgeSecret(run, hash, EdgeId(edge)));
    for (const uint64_t number : {0u, 1u}) {
      secrets.insert(ProbeSecret(run, hash, number));
      secrets.insert(TransferSecret(run, hash, number));
    }
    made += 8;
  }
  EXPECT_EQ(secrets.size(), made);
}

TEST(Secrets, TheStampIsTheBeginningOfTheHash) {
  EXPECT_EQ(StampOf("\x01\x02\x03\x04\x05\x06\x07\x88rest"), Stamp(0x8807060504030201));
  EXPECT_EQ(StampOf("short"), Stamp());
}

}  // namespace
}  // namespace longhaul::coordinator
