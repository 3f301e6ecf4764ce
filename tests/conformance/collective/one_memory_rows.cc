// Ranks whose tensors lie in the host's memory together. They are threads of this process, so the
// suite's tests of groups that end, which kill processes, do not take them.
#include <mutex>

#include "tests/conformance/collective/group.h"
#include "tests/support/one_memory.h"

namespace longhaul::collective {
namespace {

// Returns the meeting of the group that is being made: groups of this program are made one after
// another.
std::shared_ptr<testing::OneMemory> MeetingOf(const Member& member, absl::Duration call_limit) {
  static std::mutex mutex;
  static std::shared_ptr<testing::OneMemory> meeting;
  static uint32_t joined = 0;
  const std::lock_guard lock(mutex);
  if (joined == 0) meeting = std::make_shared<testing::OneMemory>(member.place().size, call_limit);
  joined = (joined + 1) % member.place().size;
  return meeting;
}

}  // namespace

const std::vector<Backend>& Backends() {
  static const auto* const backends = new std::vector<Backend>{
      {.name = "one_memory",
       .max_ranks = 8,
       .names_mismatches = false,
       .names_late_ranks = false,
       .memory = [](uint32_t) { return NewHostMemory(); },
       .create =
           [](std::shared_ptr<Member> member, Memory&, const RankSettings& settings, Deadline) {
             const auto meeting = MeetingOf(*member, settings.call_limit);
             return meeting->Join(std::move(member), nullptr);
           }},
  };
  return *backends;
}

}  // namespace longhaul::collective
