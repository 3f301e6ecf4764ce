// Two hostile workers and a hostile user say anything to a coordinator whose other run trains: the
// state machine's invariants hold (it checks them itself), and the other run notices nothing.
//
// The input is a list of acts: u8 act, u16 size (little-endian), the bytes of a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fuzz/target.h"
#include "coordinator/rpc/intake.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

constexpr char kTrains[] = "good-1", kHostile[] = "bad-1";
const std::vector<std::string> kStrangers = {"h", "i"};

class HostileMembers {
 public:
  HostileMembers() {
    for (const std::string& worker : kAb) coordinator_.Join(worker);
    coordinator_.Tick(SubmitOf(SmallSpec("good", 2), kTrains));
    coordinator_.ToRunning(kAb, kTrains);
    for (const std::string& worker : kStrangers) coordinator_.Join(worker);
    coordinator_.Tick(SubmitOf(SmallSpec("bad", 2), kHostile, 2));
    MustTrain();
  }

  // Returns whether the bytes were a message that the state machine got.
  bool Act(uint8_t act, std::string_view bytes) {
    const std::string& worker = kStrangers[act / 16 % 2];
    bool told = false;
    switch (act % 8) {
      default:
        told = Say(worker, bytes);
        break;
      case 4:
        told = Greet(worker, bytes);
        break;
      case 5:
        GoOn(act / 32, worker, bytes.size());
        break;
      case 6:
        Pass(bytes.size());
        break;
      case 7:
        Ask(act / 16, bytes.size());
    }
    coordinator_.Forget();
    MustTrain();
    return told;
  }

 private:
  void MustTrain() const {
    if (coordinator_.StateOf(kTrains) != "running" ||
        coordinator_.views().RunOf(kTrains)->epoch() != 1) {
      std::abort();
    }
  }

  bool Say(const std::string& worker, std::string_view bytes) {
    v1::WorkerMessage message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
    // A session ends with a second hello, and with what is not admitted.
    if (message.has_hello() || !AdmitReport(&message).ok()) return false;
    // A member knows the stamp of its assignment, and nobody guesses it.
    if (message.stamp() == 0) {
      message.set_stamp(coordinator_.StampAt(message.run_id(), message.epoch()));
    }
    coordinator_.Tick(coordinator_.Said(worker, std::move(message)));
    return true;
  }

  bool Greet(const std::string& worker, std::string_view bytes) {
    v1::Hello hello;
    if (!hello.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
    // Its certificate says who it is.
    hello.set_name(worker);
    hello.set_worker_id("id-" + worker);
    if (!AdmitHello(&hello).ok()) return false;
    coordinator_.Join(std::move(hello));
    return true;
  }

  // By the book, so that later messages find a run that has got further.
  void GoOn(int step, const std::string& worker, size_t number) {
    const uint64_t epoch = coordinator_.views().RunOf(kHostile)->epoch();
    switch (step) {
      case 0:
        return coordinator_.Data(kHostile);
      case 1:
        return coordinator_.Times(worker, kHostile, epoch);
      case 2:
        return coordinator_.Checked(worker);
      case 3:
        return coordinator_.Ready(worker, kHostile);
      case 4:
        return coordinator_.Steps(kStrangers, kHostile, number % 8);
      case 5:
        return coordinator_.Shards(kStrangers, kHostile, number % 8);
      case 6:
        return coordinator_.Finished(worker, kHostile, number % 8);
      default:
        coordinator_.Leave(worker);
        coordinator_.Join(worker);
    }
  }

  // Less than what the run that trains may stand still.
  void Pass(size_t tenths) {
    const absl::Duration time = std::min(absl::Milliseconds(100 * tenths), left_);
    left_ -= time;
    std::vector<std::string> alive = kAb;
    if (tenths % 2 == 0) alive.insert(alive.end(), kStrangers.begin(), kStrangers.end());
    coordinator_.Pass(time, alive);
  }

  void Ask(int what, size_t number) {
    const RequestId request(10 + ++asked_);
    switch (what % 8) {
      case 0:
        coordinator_.Tick(event::StopAsked{request, kHostile, number % 2 == 0});
        break;
      case 1:
        coordinator_.Tick(event::RemoveAsked{request, kHostile});
        break;
      case 2:
        coordinator_.Tick(event::ReplicasAsked{request, kHostile, 1 + uint32_t(number % 4)});
        break;
      case 3:
        coordinator_.Tick(event::TraceAsked{request, kHostile, uint32_t(number)});
        break;
      case 4:
        coordinator_.Tick(event::CheckpointsAsked{request, kHostile, number % 2 == 0});
        break;
      case 5:
        coordinator_.Tick(event::CheckpointsAsked{request, kHostile, false, number});
        break;
      case 6:
        coordinator_.Tick(event::SamplesAsked{request, kHostile, {}});
        break;
      default:
        coordinator_.Tick(SubmitOf(SmallSpec("bad", 2), "bad-" + std::to_string(1 + asked_),
                                   request.value(), /*resume=*/true));
    }
    // Ids of runs that were removed are gone; the hostile one always exists.
    if (!coordinator_.views().RunOf(kHostile).ok()) {
      coordinator_.Tick(SubmitOf(SmallSpec("bad", 2), kHostile, 9'000 + asked_));
    }
  }

  Coordinator coordinator_;
  absl::Duration left_ = absl::Seconds(60);
  uint64_t asked_ = 0;
};

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(worker_reports) {
  longhaul::coordinator::HostileMembers members;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  bool told = false;
  for (int acts = 0; acts < 100 && rest.size() >= 3; ++acts) {
    const size_t bytes = static_cast<uint8_t>(rest[1]) | size_t{static_cast<uint8_t>(rest[2])} << 8;
    const std::string_view message = rest.substr(3, bytes);
    told = members.Act(static_cast<uint8_t>(rest[0]), message) || told;
    rest.remove_prefix(3 + message.size());
  }
  return told;
}
