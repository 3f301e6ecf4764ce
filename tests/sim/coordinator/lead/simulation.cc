#include "tests/sim/coordinator/lead/simulation.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/coordinator/lead/sim_client.h"
#include "tests/sim/coordinator/lead/sim_seat.h"
#include "tests/sim/coordinator/lead/sim_witness.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {
namespace {

// From the end of all faults until somebody must have stored a client's change.
constexpr absl::Duration kHealLimit = absl::Seconds(90);
// No disk stalls and no process stands still for longer.
constexpr absl::Duration kLongestStall = absl::Seconds(60);
constexpr absl::Duration kChaosEvery = absl::Milliseconds(100);

class Simulation {
 public:
  Simulation(uint64_t seed, bool print)
      : world_(seed, print),
        seats_{std::make_unique<SimSeat>(&world_, kA, /*first=*/true),
               std::make_unique<SimSeat>(&world_, kB, /*first=*/false)},
        witness_(&world_) {
    for (const Place place : {kA, kB}) {
      const Place other = place == kA ? kB : kA;
      seats_[place]->Connect(
          [this, place, other](ToSeat message) {
            // What was said to a store, or by it, counts no longer when an older one is put in its
            // place: a connection ends with the process.
            world_.net.Send(place, other,
                            [this, other, stores = stores_, message = std::move(message)] {
                              if (stores == stores_) seats_[other]->Receive(message);
                            });
          },
          [this, place](witness::Request request) {
            world_.net.Send(place, kW, [this, place, request = std::move(request)] {
              witness_.Receive(request, [this, place](const witness::Record& record) {
                world_.net.Send(kW, place,
                                [this, place, record] { seats_[place]->Receive(record); });
              });
            });
          });
    }
    for (size_t i = 0; i < kClientCount; ++i) {
      clients_.push_back(std::make_unique<SimClient>(
          &world_, kClients + i,
          [this](Place place, Ask ask) { seats_[place]->Receive(std::move(ask)); }));
    }
    PickFaults();
  }

  SimulationResult Run() {
    seats_[kA]->Start();
    // Some of the simulations begin with one coordinator alone.
    if (world_.random.Chance(0.9)) seats_[kB]->Start();
    for (const auto& client : clients_) client->Start();
    const absl::Duration calm = world_.random.Between(absl::Seconds(2), absl::Seconds(12));
    RunUntil(calm, [] { return false; });
    Chaos();
    RunUntil(world_.random.Between(absl::Seconds(30), absl::Seconds(150)), [] { return false; });
    Heal();
    return {.violation = world_.violation,
            .tail = world_.violation.empty() ? "" : world_.timeline.Tail(),
            .hash = world_.timeline.hash(),
            .virtual_seconds = absl::ToDoubleSeconds(world_.timeline.elapsed()),
            .commits = world_.checker.commits(),
            .terms = world_.checker.terms(),
            .seen = world_.seen};
  }

 private:
  template <class Done>
  bool RunUntil(absl::Duration limit, const Done& done) {
    const MonoTime end = world_.timeline.now() + limit;
    while (world_.violation.empty() && world_.timeline.now() < end) {
      if (done()) return true;
      world_.timeline.Step();
    }
    return world_.violation.empty() && done();
  }

  // Each seed has a theme, so that rare pairs of faults of one kind meet often.
  void PickFaults() {
    Random& random = world_.random;
    Faults& faults = world_.faults;
    theme_ = random.Below(7);
    const bool all = theme_ == 6;
    const auto some = [&](double most) { return most * random.Unit(); };
    if (theme_ == 0 || all) faults.cut = some(0.3);
    if (theme_ == 1 || all) faults.stop = some(0.1), faults.pause = some(0.1);
    if (theme_ == 2 || all) faults.stall = some(0.1), faults.full = some(0.1);
    if (theme_ == 3 || all)
      faults.crash = some(0.3), faults.power_loss = some(0.2), faults.crash_at_write = some(0.04);
    if (theme_ == 4 || all) faults.restore = some(0.1);
    if (theme_ == 5 || all) {
      world_.net.habits = {.lost = some(0.3),
                           .repeated = some(0.3),
                           .reorders = true,
                           .slowest = random.Between(absl::Milliseconds(20), absl::Seconds(2)),
                           .latest = random.Between(absl::Seconds(1), absl::Seconds(15))};
    }
    if (random.Chance(0.3)) faults.told_alone = some(0.2);
    if (random.Chance(0.3)) faults.hasty = some(1);
    if (random.Chance(0.2)) faults.hand_over = some(0.1);
    // Every theme also has a few crashes and cuts.
    if (random.Chance(0.5)) faults.crash = std::max(faults.crash, 0.03);
    witness_stays_ = theme_ == 4 && random.Chance(0.5);
    if (!witness_stays_ && random.Chance(0.5)) faults.cut = std::max(faults.cut, 0.03);
  }

  bool Happens(double a_second) {
    return a_second > 0 && world_.random.Chance(a_second * absl::ToDoubleSeconds(kChaosEvery));
  }

  absl::Duration Length() {
    return world_.random.Between(absl::Milliseconds(200),
                                 absl::Seconds(world_.random.Chance(0.15) ? 40 : 8));
  }

  void Chaos() {
    if (over_) return;
    world_.timeline.After(kChaosEvery, [this] { Chaos(); });
    const Faults& faults = world_.faults;
    Random& random = world_.random;
    for (const auto& seat : seats_) TroubleSeat(*seat);
    if (!witness_stays_ && Happens(faults.crash / 3)) witness_.Crash(Length());
    if (!witness_stays_ && Happens((faults.stop + faults.stall) / 3)) witness_.Freeze(Length());
    if (Happens(faults.cut)) {
      const size_t count = kClients + kClientCount;
      // Mostly among the three that vote.
      const size_t among = random.Chance(0.8) ? size_t{kClients} : count;
      const size_t one = random.Below(among), other = random.Below(among);
      if (one == other) return;
      const absl::Duration length = Length();
      const bool both = random.Chance(0.6);
      world_.timeline.Note("{} {} {} is cut for {}", one, both ? "<->" : "->", other,
                           absl::FormatDuration(length));
      world_.net.Cut(one, other, length);
      if (both) world_.net.Cut(other, one, length);
    }
  }

  void TroubleSeat(SimSeat& seat) {
    const Faults& faults = world_.faults;
    Random& random = world_.random;
    if (Happens(faults.crash)) seat.Crash(/*power=*/false);
    if (Happens(faults.power_loss)) seat.Crash(/*power=*/true);
    if (!seat.running()) {
      if (Happens(random.Chance(0.7) ? 3 : 0.1)) seat.Start();
      return;
    }
    if (Happens(faults.stop)) seat.Freeze(Length(), /*clock_too=*/false);
    if (Happens(faults.pause)) seat.Freeze(Length(), /*clock_too=*/true);
    if (Happens(faults.stall)) seat.StallDisk(Length());
    if (Happens(faults.full)) seat.FillDisk(Length());
    if (faults.restore > 0) TroubleImage(seat);
  }

  // Somebody puts back an older image of a seat's disk. The witness notices where it has heard of a
  // change that the image lacks. Nobody can notice it otherwise.
  void TroubleImage(SimSeat& seat) {
    const Place place = &seat == seats_[kA].get() ? kA : kB;
    auto& image = images_[place];
    if (!image || Happens(0.05)) image = seat.disk();
    const witness::Record& file = witness_.file();
    const bool noticed = image->log.size() < file.seen;
    // A seat whose record says that it is alone does not ask a witness that is away.
    const bool asks = image->record.in_sync != std::vector<std::string>{seat.name()} ||
                      (witness_stays_ && image->has_witness);
    if (!noticed || !asks || !HasAll(*seats_[place == kA ? kB : kA], file) ||
        !Happens(world_.faults.restore)) {
      return;
    }
    world_.timeline.Note("{} gets an old image: {} changes, {} are known", seat.name(),
                         image->log.size(), file.seen);
    ++world_.seen["an old image was put back"];
    seat.PutBack(*image);
    ++stores_[place];
    seats_[place == kA ? kB : kA]->LoseOther();
  }

  // Whether a seat has every committed change, and can come to lead: the last copy of a change
  // cannot come back.
  bool HasAll(SimSeat& seat, const witness::Record& file) {
    if (!world_.checker.HasAll(seat.disk().log)) return false;
    return (seat.acts() && seat.seat().leads()) || IsInSync(seat, file);
  }

  // Whether a seat may be elected: it is in sync by the witness's record, and has not elected the
  // other one since, of which the witness may not have heard.
  static bool IsInSync(SimSeat& seat, const witness::Record& file) {
    const std::vector<std::string>& own = seat.disk().record.in_sync;
    const auto there = [&](const std::vector<std::string>& in_sync) {
      return std::ranges::find(in_sync, seat.name()) != in_sync.end();
    };
    // A stalled disk may not have stored it yet.
    if (seat.running() && seat.seat().gave_way()) return false;
    return there(file.in_sync) && (own.empty() || there(own));
  }

  // The faults end. All three go on, or two of them, if a copy in sync is among those.
  void Heal() {
    if (!world_.violation.empty()) return;
    over_ = true;
    world_.net.Heal();
    world_.net.habits = {};
    witness_.Heal();
    world_.faults.told_alone = world_.faults.hasty = world_.faults.crash_at_write = 0;
    world_.faults.hand_over = 0;
    const size_t away = world_.random.Below(4);
    const bool all = away > kW || world_.faults.restore > 0;
    if (!all && away == kW) witness_.Freeze(absl::Hours(10));
    if (!all && away != kW) {
      seats_[away]->Crash(/*power=*/false);
      // Messages that it has sent may still arrive, and wait for whoever takes none now.
      RunUntil(kLongestStall, [&] { return !seats_[away == kA ? kB : kA]->is_busy(); });
      RunUntil(absl::Seconds(16), [] { return false; });
      if (!IsInSync(*seats_[away == kA ? kB : kA], witness_.file())) seats_[away]->Heal();
    }
    world_.timeline.Note("the faults end; {} stays away", all          ? "nobody"
                                                          : away == kA ? "A"
                                                          : away == kB ? "B"
                                                                       : "W");
    for (const Place place : {kA, kB}) {
      if (all || place != away) seats_[place]->Heal();
    }
    // Whoever asks now must be answered with success.
    const size_t stored = world_.checker.stored().size();
    const bool led =
        RunUntil(kHealLimit, [&] { return world_.checker.stored().size() > stored + 2; });
    if (!world_.violation.empty()) return;
    if (!led) {
      world_.Violate(
          "nobody leads {} after all faults have ended; A: {}; B: {}; witness: term {}, {} in sync",
          absl::FormatDuration(kHealLimit), Describe(*seats_[kA]), Describe(*seats_[kB]),
          witness_.file().term, witness_.file().in_sync.size());
      return;
    }
    for (const auto& client : clients_) client->Stop();
    RunUntil(absl::Seconds(20), [] { return false; });
    RunUntil(kHealLimit, [&] {
      return std::ranges::any_of(
          seats_, [](const auto& seat) { return seat->acts() && seat->seat().leads(); });
    });
    const SimSeat* leader = nullptr;
    for (const auto& seat : seats_) {
      if (seat->acts() && seat->seat().leads() &&
          (leader == nullptr || seat->seat().record().term > leader->seat().record().term)) {
        leader = seat.get();
      }
    }
    if (leader == nullptr) {
      world_.Violate("whoever led after the faults does not lead any more");
      return;
    }
    world_.checker.CheckEnd(const_cast<SimSeat*>(leader)->disk().log);
  }

  static std::string Describe(const SimSeat& seat) {
    if (!seat.running()) return "does not run";
    return fmt::format("term {}, {}{}, {} in sync, change {}", seat.seat().record().term,
                       seat.seat().leads() ? "leads" : "follows", seat.acts() ? " and acts" : "",
                       seat.seat().record().in_sync.size(), seat.seat().logged().number);
  }

  World world_;
  std::array<std::unique_ptr<SimSeat>, 2> seats_;
  SimWitness witness_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::map<Place, std::optional<SeatDisk>> images_;
  uint64_t theme_ = 0;
  bool witness_stays_ = false;           // it has no faults, and everybody reaches it
  std::array<uint64_t, 2> stores_ = {};  // how often each seat's store was replaced
  bool over_ = false;
};

}  // namespace

SimulationResult Simulate(uint64_t seed, bool print) {
  return Simulation(seed, print).Run();
}

}  // namespace longhaul::coordinator::lead_sim
