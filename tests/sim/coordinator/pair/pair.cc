#include "tests/sim/coordinator/pair/pair.h"

#include <algorithm>
#include <utility>

namespace longhaul::coordinator::sim {
namespace {

// How long a user waits for an answer before the call is made elsewhere.
constexpr absl::Duration kCallLimit = absl::Seconds(10);
// How long messages of a coordinator that has ended may still be on their way.
constexpr absl::Duration kLastWords = absl::Seconds(5);

}  // namespace

Pair::Pair(World* world, Checkers* checkers, StateOptions options, size_t workers)
    : world_(world),
      pair_(world, checkers, std::move(options)),
      seats_{std::make_unique<PairSeat>(&pair_, kA, /*first=*/true),
             std::make_unique<PairSeat>(&pair_, kB, /*first=*/false)},
      witness_(&pair_.lead),
      lines_(workers) {
  for (const Place place : {kA, kB}) {
    const Place other = place == kA ? kB : kA;
    seats_[place]->Connect(
        [this, place, other](pair_message::Message message) {
          pair_.lead.net.Send(
              place, other,
              [this, other, stores = stores_, message = std::move(message)] {
                if (stores == stores_) seats_[other]->Receive(message);
              },
              /*exact=*/true);
        },
        [this, place](witness::Request request) {
          pair_.lead.net.Send(place, kW, [this, place, request = std::move(request)] {
            witness_.Receive(request, [this, place](const witness::Record& record) {
              pair_.lead.net.Send(kW, place, [this, place, record] {
                seats_[place]->HearWitness(record, /*hello=*/false);
              });
            });
          });
        },
        [this, place] {
          return line_of_[place] == seats_[place]->process() && !witness_.IsAway() &&
                 !pair_.lead.net.IsCut(place, kW) && !pair_.lead.net.IsCut(kW, place);
        });
  }
  pair_.new_term = [this](Place place) {
    newest_ = place;
    pair_.Blame(world_->timeline.now());
    seats_[place == kA ? kB : kA]->shell().Supersede();
  };
  // Users are told that the standby has their changes. So it must be possible to elect it.
  pair_.both_in_sync = [this](Place place) {
    if (!witness_.file().in_sync.empty()) return;
    world_->Violate(
        "{} counts both as in sync, and the witness, which has an empty record, elects nobody",
        seats_[place]->name());
  };
}

void Pair::Begin() {
  seats_[kA]->Start();
  seats_[kB]->Start();
  WitnessDials();
}

// Each second, and again where its connection is gone.
void Pair::WitnessDials() {
  world_->timeline.After(absl::Seconds(1), [this] { WitnessDials(); });
  for (const Place place : {kA, kB}) {
    const bool cut = pair_.lead.net.IsCut(place, kW) || pair_.lead.net.IsCut(kW, place);
    if (cut || witness_.IsAway()) {
      line_of_[place] = 0;
      continue;
    }
    if (!seats_[place]->running() || seats_[place]->IsFrozen()) continue;
    // Whoever does not know the witness ends its connection.
    const bool is_connected = line_of_[place] == seats_[place]->process();
    if (is_connected && (seats_[place]->takes_witness() || seats_[place]->is_busy())) continue;
    line_of_[place] = seats_[place]->process();
    pair_.lead.net.Send(kW, place, [this, place, record = witness_.file()] {
      seats_[place]->HearWitness(record, /*hello=*/true);
    });
  }
}

std::shared_ptr<Connection> Pair::Dial(size_t worker, size_t at, Connection::WorkerEnd end) {
  const size_t from = PairWorld::PlaceOf(worker);
  if (pair_.lead.net.IsCut(from, at) || pair_.lead.net.IsCut(at, from)) return nullptr;
  auto connection = seats_[at]->Accept(std::move(end));
  lines_[worker][at] = connection;
  return connection;
}

void Pair::Ask(const std::function<Event(RequestId)>& make, const SimCoordinator::Done& done) {
  const size_t client = world_->random.Below(kClientCount);
  const size_t place = kClients + client;
  const size_t to = asks_[client];
  const auto open = std::make_shared<bool>(true);
  const auto end = [this, client, to, open, done](const Command* reply) {
    if (!std::exchange(*open, false)) return;
    if (reply == nullptr) asks_[client] = 1 - to;
    done(reply);
  };
  const auto answered = [this, place, to, end](const Command* reply) {
    std::optional<Command> copy;
    if (reply != nullptr) copy = *reply;
    pair_.lead.net.Send(
        to, place, [end, copy = std::move(copy)] { end(copy ? &*copy : nullptr); },
        /*exact=*/true);
  };
  pair_.lead.net.Send(
      place, to, [this, to, make, answered] { seats_[to]->Ask(make, answered); }, /*exact=*/true);
  world_->timeline.After(kCallLimit, [end] { end(nullptr); });
}

// ---- Faults ------------------------------------------------------------------------

// Each seed has a theme, so that rare pairs of faults of one kind meet often.
void Pair::DrawRates() {
  Random& random = world_->random;
  lead_sim::Faults& faults = pair_.lead.faults;
  const uint64_t theme = random.Below(7);
  const bool all = theme == 6;
  const auto some = [&](double most) { return most * random.Unit(); };
  if (theme == 0 || all) faults.cut = some(0.15);
  if (theme == 1 || all) faults.stop = some(0.05), faults.pause = some(0.05);
  if (theme == 2 || all) faults.stall = some(0.05), faults.full = some(0.05);
  if (theme == 3 || all) {
    faults.crash = some(0.1), faults.power_loss = some(0.1), faults.crash_at_write = some(0.01);
  }
  if (theme == 4 || all) cut_workers_ = some(0.2);
  if (theme == 5) faults.restore = 0.1;
  if (theme == 5) faults.cut = some(0.05), cut_workers_ = some(0.05), faults.crash = some(0.05);
  // Every theme also has a few deaths.
  if (random.Chance(0.5)) faults.crash = std::max(faults.crash, 0.02);
  if (random.Chance(0.3)) faults.cut = std::max(faults.cut, 0.02);
}

bool Pair::Happens(double a_second) {
  return a_second > 0 && world_->random.Chance(a_second * absl::ToDoubleSeconds(kMoment));
}

absl::Duration Pair::Length() {
  return world_->random.Between(absl::Milliseconds(200),
                                absl::Seconds(world_->random.Chance(0.15) ? 40 : 10));
}

void Pair::Moment() {
  if (over_) return;
  for (const auto& seat : seats_) TroubleSeat(*seat);
  const lead_sim::Faults& faults = pair_.lead.faults;
  if (Happens(faults.crash / 3)) witness_.Crash(Length());
  if (Happens((faults.stop + faults.stall) / 3)) witness_.Freeze(Length());
  TroubleNetwork();
}

void Pair::TroubleSeat(PairSeat& seat) {
  const lead_sim::Faults& faults = pair_.lead.faults;
  if (Happens(faults.crash)) seat.Crash(/*power=*/false);
  if (Happens(faults.power_loss)) seat.Crash(/*power=*/true);
  if (!seat.running()) {
    if (Happens(world_->random.Chance(0.7) ? 1 : 0.1)) seat.Start();
    return;
  }
  if (Happens(faults.stop)) seat.Freeze(Length(), /*clock_too=*/false);
  if (Happens(faults.pause)) seat.Freeze(Length(), /*clock_too=*/true);
  if (Happens(faults.stall)) seat.StallDisk(Length());
  if (Happens(faults.full)) seat.FillDisk(Length());
  if (faults.restore > 0) TroubleImage(&seat == seats_[kA].get() ? kA : kB);
}

void Pair::TroubleNetwork() {
  Random& random = world_->random;
  if (Happens(pair_.lead.faults.cut)) {
    const size_t places = kClients + kClientCount;
    // Mostly among the three that vote.
    const size_t among = random.Chance(0.8) ? size_t{kClients} : places;
    Cut(random.Below(among), random.Below(among), Length());
  }
  if (Happens(cut_workers_)) {
    const absl::Duration length = Length();
    const size_t seat = random.Below(2);
    const bool from_all = random.Chance(0.3);
    const size_t one = random.Below(lines_.size());
    for (size_t worker = 0; worker < lines_.size(); ++worker) {
      if (from_all || worker == one) Cut(PairWorld::PlaceOf(worker), seat, length);
    }
  }
}

void Pair::Cut(size_t one, size_t other, absl::Duration length) {
  if (one == other) return;
  const bool there = world_->random.Chance(0.7), back = !there || world_->random.Chance(0.6);
  world_->timeline.Note("{} {} {} is cut for {}", one,
                        there && back ? "<->"
                        : there       ? "->"
                                      : "<-",
                        other, absl::FormatDuration(length));
  pair_.Blame(world_->timeline.now() + length);
  if (there) pair_.lead.net.Cut(one, other, length);
  if (back) pair_.lead.net.Cut(other, one, length);
  const size_t workers = PairWorld::PlaceOf(0);
  if (one < workers) return;
  const auto line = lines_[one - workers][other].lock();
  if (line == nullptr) return;
  world_->Blame(one - workers, length);
  // A connection outlives a short silence.
  if (length < absl::Seconds(3)) {
    line->Delay(length);
  } else if (there && back) {
    line->Cut(/*silent=*/true);
  } else {
    line->CutOneWay(/*up=*/there);
  }
}

void Pair::End() {
  over_ = true;
  // Whoever has an old image needs the two others.
  const bool all = pair_.lead.faults.restore > 0;
  pair_.lead.faults = lead_sim::Faults();
  cut_workers_ = 0;
  pair_.lead.net.Heal();
  witness_.Heal();
  // One of the three stays away, if the two others can lead.
  const size_t away = all ? kClients : world_->random.Below(6);
  if (away == kW) {
    world_->timeline.Note("the witness stays away");
    witness_.Freeze(absl::Hours(100));
  }
  for (const Place place : {kA, kB}) {
    if (away != place) {
      seats_[place]->Heal();
    } else {
      StayAway(place);
    }
  }
}

void Pair::StayAway(Place place) {
  world_->timeline.Note("{} stays away", seats_[place]->name());
  seats_[place]->Crash(/*power=*/false);
  AwaitLastWords(place);
}

// Last words of a coordinator that has ended may still change who is in sync, also those that wait
// until the other one takes messages again.
void Pair::AwaitLastWords(Place place) {
  PairSeat& other = *seats_[place == kA ? kB : kA];
  const bool waits = other.is_busy();
  pair_.Blame(world_->timeline.now() + kLastWords);
  world_->timeline.After(kLastWords, [this, place, waits, &other] {
    if (waits) return AwaitLastWords(place);
    if (MayLead(other)) return;
    world_->timeline.Note("{} is needed", seats_[place]->name());
    seats_[place]->Heal();
  });
}

// Somebody puts back an older image of a coordinator's disk. The witness notices where it has heard
// of a change that the image lacks. Nobody can notice it otherwise, nor bring back the last copy of
// a change.
void Pair::TroubleImage(Place place) {
  const Place other = place == kA ? kB : kA;
  auto& image = images_[place];
  PairSeat& seat = *seats_[place];
  if (!image || Happens(0.05)) image = seat.disk();
  const witness::Record& file = witness_.file();
  const bool noticed = image->log.size() < file.seen;
  // Whoever leads alone by its own record asks nobody.
  const bool asks = image->record.in_sync != std::vector<std::string>{seat.name()};
  if (!noticed || !asks || !HasAll(other) || !Happens(pair_.lead.faults.restore)) return;
  world_->timeline.Note("{} gets an old image: {} changes, {} are known", seat.name(),
                        image->log.size(), file.seen);
  pair_.Saw("an old image was put back");
  seat.Crash(/*power=*/true);
  seat.disk() = *image;
  seat.disk().SyncAll();
  // What was said to the store before, or by it, counts no longer.
  ++stores_[place];
  seats_[other]->LoseOther();
}

bool Pair::HasAll(Place place) {
  PairSeat& seat = *seats_[place];
  if (!pair_.lead.checker.HasAll(seat.disk().log)) return false;
  return (seat.acts() && seat.sure()) || MayLead(seat);
}

// A seat that gave way may not have stored that yet. A follower takes no word of a witness before
// it knows that the change that names it is committed.
bool Pair::MayLead(PairSeat& seat) const {
  if (!seat.HasWitness() || (seat.running() && seat.gave_way())) return false;
  const std::vector<std::string>& own = seat.disk().record.in_sync;
  const auto there = [&](const std::vector<std::string>& in_sync) {
    return std::ranges::find(in_sync, seat.name()) != in_sync.end();
  };
  return there(witness_.file().in_sync) && (own.empty() || there(own));
}

std::string Pair::Describe() const {
  const witness::Record& file = witness_.file();
  return fmt::format("A: {}; B: {}; witness: term {} of {}, {} in sync, has heard of change {}",
                     seats_[kA]->Describe(), seats_[kB]->Describe(), file.term, file.seat,
                     file.in_sync.size(), file.seen);
}

}  // namespace longhaul::coordinator::sim
