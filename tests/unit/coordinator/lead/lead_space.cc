#include "tests/unit/coordinator/lead/lead_space.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "base/overloaded.h"
#include "coordinator/lead/seat.h"
#include "tests/unit/coordinator/lead/lead_space_world.h"

namespace longhaul::coordinator {
namespace {

using namespace space;

class Search {
 public:
  explicit Search(const SpaceLimits& limits) : limits_(limits) {}

  SpaceResult Run(SpaceStart start) {
    World first = Begin(start);
    Add(std::move(first), -1, "start");
    size_t level_end = worlds_.size();
    for (size_t at = 0; at < worlds_.size() && result_.violation.empty(); ++at) {
      if (at == level_end) {
        ++result_.depth;
        level_end = worlds_.size();
      }
      if (seen_.size() >= limits_.most_states) {
        result_.states = seen_.size();
        return result_;
      }
      // The world is not needed again; only its path is.
      const std::unique_ptr<World> world = std::move(worlds_[at].world);
      Expand(*world, static_cast<int>(at));
    }
    result_.states = seen_.size();
    result_.complete = result_.violation.empty();
    return result_;
  }

 private:
  struct Node {
    std::unique_ptr<World> world;
    int parent = -1;
    std::string step;
  };

  World Begin(SpaceStart start) {
    World world;
    world.left = limits_;
    const bool both = start != SpaceStart::kAlone;
    const std::vector<std::string> in_sync =
        both ? std::vector<std::string>{"A", "B"} : std::vector<std::string>{"A"};
    world.witness = {.id = "W", .term = 1, .tenure = Tenure("a"), .seat = "A", .in_sync = in_sync};
    const History begun{.term = 1, .number = 1, .chain = 7};
    for (size_t i = 0; i < 2; ++i) {
      // B's own record says nothing of it: it never led.
      const SeatRecord record{.seat = kSeats[i],
                              .other = kSeats[1 - i],
                              .term = 1,
                              .in_sync = i == 0 ? in_sync : std::vector<std::string>()};
      world.seats[i] = Seat(record, begun);
      world.logs[i] = {begun};
    }
    world.images = world.seats;
    if (start != SpaceStart::kCold) {
      world.seats[0].AskWitness(Tenure("b"));
      world.seats[0].TakeEffects();
      world.witness.term = 2;
      world.witness.tenure = Tenure("b");
      world.seats[0].OnWitness(world.witness);
      Carry(&world, 0);
      if (both) DeliverAll(&world);
      world.sent.clear();
      if (limits_.restores > 0) world.witness.seen = world.logs[0].size();
    }
    world.done = world.logs[0];
    return world;
  }

  void DeliverAll(World* world) {
    for (int i = 0; i < 20; ++i) {
      const std::vector<Sent> sent = world->sent;
      for (const Sent& one : sent) Deliver(world, *one.message);
    }
  }

  void Add(World world, int parent, std::string step) {
    if (!seen_.insert(world.Hash()).second) return;
    worlds_.push_back({std::make_unique<World>(std::move(world)), parent, std::move(step)});
  }

  std::string Path(int node, const std::string& step) const {
    std::string path = step;
    for (; node >= 0; node = worlds_[static_cast<size_t>(node)].parent) {
      path.insert(0, worlds_[static_cast<size_t>(node)].step + "; ");
    }
    return path;
  }

  // Makes a next world, and adds it if `change` did something.
  template <class Change>
  void Try(const World& world, int node, const std::string& step, const Change& change) {
    World next = world;
    change(&next);
    Check(next);
    if (!problem_.empty()) {
      result_.violation = fmt::format("{}: {}", problem_, Path(node, step));
      problem_.clear();
      return;
    }
    Add(std::move(next), node, step);
  }

  void Expand(const World& world, int node) {
    for (const Sent& one : world.sent) {
      if (!result_.violation.empty()) return;
      Try(world, node, Name(*one.message), [&](World* next) { Deliver(next, *one.message); });
    }
    for (size_t i = 0; i < 2 && result_.violation.empty(); ++i) Acts(world, node, i);
  }

  void Acts(const World& world, int node, size_t i) {
    const Seat& seat = world.seats[i];
    const auto name = [&](const char* what) { return fmt::format("{} {}", kSeats[i], what); };
    const auto tenure = [](World* next) {
      return Tenure(std::string(1, static_cast<char>('c' + next->tenures++)));
    };
    if (!seat.leads() && world.left.elections > 0) {
      Try(world, node, name("asks W"), [&](World* next) {
        --next->left.elections;
        next->seats[i].AskWitness(tenure(next));
        Carry(next, i);
      });
      if (world.left.votes > 0) {
        Try(world, node, name("asks the other"), [&](World* next) {
          --next->left.elections;
          --next->left.votes;
          next->seats[i].AskOther(tenure(next));
          Carry(next, i);
        });
      }
      if (seat.alone()) {
        Try(world, node, name("leads alone"), [&](World* next) {
          --next->left.elections;
          next->seats[i].LeadAlone(tenure(next));
          Carry(next, i);
        });
      }
    }
    if (seat.leads() && !seat.has_proposal() && world.term_committed[i] && world.left.changes > 0) {
      Try(world, node, name("proposes"), [&](World* next) {
        --next->left.changes;
        Propose(next, i);
      });
    }
    if (seat.leads() && !seat.alone() && world.left.shrinks > 0) {
      Try(world, node, name("asks to be alone"), [&](World* next) {
        --next->left.shrinks;
        next->seats[i].Shrink();
        Carry(next, i);
      });
    }
    if (seat.leads() && world.left.grows > 0 && !seat.has_proposal()) {
      Try(world, node, name("counts the other"), [&](World* next) {
        if (!next->seats[i].Grow(kSeats[1 - i])) return;
        --next->left.grows;
        Carry(next, i);
      });
    }
    if (seat.leads() && world.left.reminders > 0) {
      Try(world, node, name("reminds W"), [&](World* next) {
        --next->left.reminders;
        next->seats[i].RemindWitness();
        Carry(next, i);
      });
    }
    // Somebody notices, and the other seat has everything.
    const bool notices = world.witness.seen > world.images[i].logged().number &&
                         world.logs[1 - i].size() >= world.done.size();
    if (world.left.restores > 0 && notices) {
      Try(world, node, name("gets an old image"), [&](World* next) {
        --next->left.restores;
        PutBack(next, i);
      });
    }
    if (world.left.crashes > 0) {
      Try(world, node, name("crashes"), [&](World* next) {
        --next->left.crashes;
        Crash(next, i);
      });
    }
  }

  // Effects are carried out at once, so a crash among them is one whose messages are lost.
  void Carry(World* world, size_t i) {
    Seat& seat = world->seats[i];
    std::vector<History>& log = world->logs[i];
    for (const Effect& effect : seat.TakeEffects()) {
      std::visit(Overloaded{
                     [&](const effect::AskWitness& ask) {
                       Send(world, ToWitness{static_cast<int>(i), ask.request});
                     },
                     [&](const effect::Say& say) {
                       Send(world, ToSeat{static_cast<int>(1 - i), say.message, world->restores});
                     },
                     [&](const effect::Lead&) {
                       ++result_.leaders;
                       world->term_committed[i] = false;
                       Propose(world, i);
                     },
                     [&](const effect::Send&) {
                       log.push_back(seat.logged());
                       SendRows(world, i, 1);
                     },
                     [&](const effect::Commit& commit) { Commit(world, i, commit.change); },
                     [&](const effect::StepDown& down) { log.resize(down.logged); },
                     [&](const effect::Resend&) { Resend(world, i); },
                     [&](const effect::Log& one) { log.push_back(one.change); },
                     [&](const effect::CutTail& cut) { log.resize(cut.number); },
                     [](const auto&) {},
                 },
                 effect);
    }
  }

  void Propose(World* world, size_t i) {
    Seat& seat = world->seats[i];
    const History before = seat.logged();
    seat.Propose({.term = seat.record().term,
                  .number = before.number + 1,
                  .chain = HashOf(before, seat.tenure())});
    Carry(world, i);
  }

  void Resend(World* world, size_t i) {
    const size_t count = world->logs[i].size();
    SendRows(world, i, count);
    if (limits_.restores == 0) return;
    // The follower may come to have some of them.
    for (size_t k = 2; k < count; ++k) SendRows(world, i, k, 1);
  }

  // The newest `count` changes, but only the oldest `most` of them.
  void SendRows(World* world, size_t i, size_t count, size_t most = SIZE_MAX) {
    const Seat& seat = world->seats[i];
    const std::vector<History>& log = world->logs[i];
    const size_t from = log.size() - std::min(count, log.size());
    const size_t to = from + std::min(most, log.size() - from);
    seat_message::Rows rows{
        .term = seat.record().term,
        .tenure = seat.tenure(),
        .seat = kSeats[i],
        .gives_way = seat.needs_way(),
        // Said only where it matters, for fewer messages.
        .in_sync = seat.in_sync_of_two() && !seat.record().voter.empty() && to == log.size(),
        .before = from == 0 ? History{} : log[from - 1],
        .rows = {log.begin() + static_cast<ptrdiff_t>(from),
                 log.begin() + static_cast<ptrdiff_t>(to)},
        .committed = seat.applied().number};
    Send(world, ToSeat{static_cast<int>(1 - i), rows, world->restores});
  }

  static void PutBack(World* world, size_t i) {
    world->seats[i] = world->images[i];
    world->logs[i].resize(world->seats[i].logged().number);
    world->term_committed[i] = false;
    ++world->restores;
    world->seats[1 - i].ForgetFollower();
  }

  void Commit(World* world, size_t i, const History& change) {
    ++result_.commits;
    const Seat& seat = world->seats[i];
    const std::vector<History>& log = world->logs[i];
    world->term_committed[i] = true;
    const uint64_t term = seat.record().term;
    for (const auto& [known, tenure] : world->leaders) {
      if (known == term && tenure != seat.tenure()) problem_ = "two tenures commit in one term";
    }
    const bool first = std::ranges::none_of(
        world->leaders, [&](const auto& leader) { return leader.first == term; });
    if (first) world->leaders.emplace_back(term, seat.tenure());
    if (log.empty() || !(log.back() == change)) problem_ = "a commit is not the end of the log";
    for (size_t k = 0; k < log.size(); ++k) {
      if (k < world->done.size() && !(world->done[k] == log[k])) {
        problem_ = fmt::format("commit {} differs", k + 1);
      }
      if (k >= world->done.size()) world->done.push_back(log[k]);
    }
    const bool newest = std::ranges::all_of(
        world->leaders, [&](const auto& leader) { return leader.first <= term; });
    if (newest && world->done.size() != log.size()) problem_ = "a leader lacks a commit";
    if (change.number < world->done.size()) return;
    // An idle leader tells it.
    SendRows(world, i, 1);
  }

  void Crash(World* world, size_t i) {
    Seat& seat = world->seats[i];
    std::vector<History> tail = seat.tail();
    if (seat.has_proposal()) tail.pop_back();
    seat = Seat(seat.record(), seat.applied(), std::move(tail));
    world->logs[i].resize(seat.logged().number);
    world->term_committed[i] = false;
  }

  static void Send(World* world, Message message) {
    const uint64_t hash = HashOf(message);
    const auto at = std::ranges::lower_bound(world->sent, hash, {}, &Sent::hash);
    if (at != world->sent.end() && at->hash == hash) return;
    world->sent.insert(at, Sent{hash, std::make_shared<const Message>(std::move(message))});
  }

  void Deliver(World* world, const Message& message) {
    std::visit(Overloaded{
                   [&](const ToWitness& m) {
                     witness::Decide(m.request, /*leader_is_heard=*/false, &world->witness);
                     Send(world, FromWitness{m.from, world->witness});
                   },
                   [&](const FromWitness& m) {
                     world->seats[static_cast<size_t>(m.to)].OnWitness(m.record);
                     Carry(world, static_cast<size_t>(m.to));
                   },
                   [&](const ToSeat& m) {
                     if (m.restores != world->restores) return;
                     world->seats[static_cast<size_t>(m.to)].OnSeat(m.message);
                     Carry(world, static_cast<size_t>(m.to));
                   },
               },
               message);
  }

  static std::string Name(const Message& message) {
    return std::visit(Overloaded{
                          [](const ToWitness& m) {
                            return fmt::format("W hears {} ({})",
                                               kSeats[static_cast<size_t>(m.from)],
                                               m.request.index() == 0 ? "elect" : "in sync");
                          },
                          [](const FromWitness& m) {
                            return fmt::format("{} hears W (term {}, {} in sync, ask {})",
                                               kSeats[static_cast<size_t>(m.to)], m.record.term,
                                               m.record.in_sync.size(), m.record.ask);
                          },
                          [](const ToSeat& m) {
                            constexpr std::array<const char*, 6> kNames = {
                                "vote", "voted", "rows", "logged", "lacks", "newer"};
                            return fmt::format("{} hears {}", kSeats[static_cast<size_t>(m.to)],
                                               kNames[m.message.index()]);
                          },
                      },
                      message);
  }

  void Check(const World& world) {
    if (!problem_.empty()) return;
    // Whom the witness would elect has everything.
    for (const std::string& id : world.witness.in_sync) {
      const size_t i = id == "A" ? 0 : 1;
      const std::vector<History>& log = world.logs[i];
      // One that gave way does not ask, and one that lacks what the witness has seen is refused.
      if (world.seats[i].gave_way() || log.size() < world.witness.seen) continue;
      if (log.size() < world.done.size() ||
          !std::equal(world.done.begin(), world.done.end(), log.begin())) {
        problem_ = fmt::format("{} is in sync at the witness and lacks a commit", id);
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      if (world.logs[i].empty() || !(world.logs[i].back() == world.seats[i].logged())) {
        problem_ = fmt::format("the log of {} is not as its seat says", kSeats[i]);
      }
    }
  }

  const SpaceLimits limits_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Node> worlds_;
  SpaceResult result_;
  std::string problem_;
};

}  // namespace

SpaceResult SearchSpace(SpaceStart start, const SpaceLimits& limits) {
  return Search(limits).Run(start);
}

}  // namespace longhaul::coordinator
