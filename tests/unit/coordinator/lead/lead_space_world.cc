#include "tests/unit/coordinator/lead/lead_space_world.h"

#include <span>

#include "base/hash.h"
#include "base/overloaded.h"

namespace longhaul::coordinator::space {
namespace {

// A text of everything, for hashes.
class Bytes {
 public:
  void Add(uint64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void Add(const std::string& text) {
    Add(text.size());
    text_ += text;
  }
  void Add(const Tenure& tenure) { Add(tenure.value()); }
  void Add(const History& h) {
    Add(h.term);
    Add(h.number);
    Add(h.chain);
  }
  void Add(const std::vector<std::string>& texts) {
    Add(texts.size());
    for (const std::string& text : texts) Add(text);
  }
  void Add(const witness::Record& r) {
    Add(r.term);
    Add(r.tenure);
    Add(r.seat);
    Add(r.in_sync);
    Add(r.ask);
    Add(r.seen);
  }
  void Add(const witness::Request& request) {
    Add(request.index());
    std::visit(Overloaded{
                   [&](const witness::Elect& e) {
                     Add(e.term);
                     Add(e.tenure);
                     Add(e.seat);
                     Add(e.number);
                     Add(e.voter);
                   },
                   [&](const witness::SetInSync& s) {
                     Add(s.term);
                     Add(s.tenure);
                     Add(s.in_sync);
                     Add(s.ask);
                   },
                   [&](const auto&) {},
               },
               request);
  }
  void Add(const SeatMessage& message) {
    Add(message.index());
    std::visit(Overloaded{
                   [&](const seat_message::Vote& v) {
                     Add(v.term);
                     Add(v.tenure);
                     Add(v.history);
                   },
                   [&](const seat_message::Voted& v) {
                     Add(v.term);
                     Add(v.tenure);
                     Add(v.granted);
                     Add(v.newest);
                   },
                   [&](const seat_message::Rows& r) {
                     Add(r.term);
                     Add(r.tenure);
                     Add(r.gives_way);
                     Add(r.in_sync);
                     Add(r.before);
                     for (const History& row : r.rows) Add(row);
                     Add(r.committed);
                   },
                   [&](const seat_message::Logged& l) {
                     Add(l.term);
                     Add(l.tenure);
                     Add(l.history);
                   },
                   [&](const seat_message::Lacks& l) {
                     Add(l.term);
                     Add(l.tenure);
                     Add(l.logged);
                     Add(l.applied);
                   },
                   [&](const seat_message::Newer& n) {
                     Add(n.term);
                     Add(n.newest);
                   },
               },
               message);
  }
  uint64_t Hash() const { return Checksum64(std::as_bytes(std::span(text_))); }

 private:
  std::string text_;
};

}  // namespace

uint64_t HashOf(const Message& message) {
  Bytes bytes;
  bytes.Add(message.index());
  std::visit(Overloaded{
                 [&](const ToWitness& m) {
                   bytes.Add(static_cast<uint64_t>(m.from));
                   bytes.Add(m.request);
                 },
                 [&](const FromWitness& m) {
                   bytes.Add(static_cast<uint64_t>(m.to));
                   bytes.Add(m.record);
                 },
                 [&](const ToSeat& m) {
                   bytes.Add(static_cast<uint64_t>(m.to));
                   bytes.Add(static_cast<uint64_t>(m.restores));
                   bytes.Add(m.message);
                 },
             },
             message);
  return bytes.Hash();
}

uint64_t HashOf(const History& before, const Tenure& tenure) {
  Bytes bytes;
  bytes.Add(before);
  bytes.Add(tenure);
  return bytes.Hash();
}

uint64_t World::Hash() const {
  Bytes bytes;
  for (size_t i = 0; i < 2; ++i) {
    const Seat& seat = seats[i];
    bytes.Add(seat.record().term);
    bytes.Add(seat.record().in_sync);
    bytes.Add(seat.record().asked);
    bytes.Add(seat.record().voter);
    bytes.Add(seat.leads());
    bytes.Add(seat.tenure());
    bytes.Add(seat.is_candidate());
    bytes.Add(seat.candidacy());
    bytes.Add(seat.applied());
    for (const History& h : seat.tail()) bytes.Add(h);
    bytes.Add(seat.has_proposal());
    bytes.Add(seat.acknowledged());
    bytes.Add(seat.shrinks());
    bytes.Add(seat.ask());
    bytes.Add(term_committed[i]);
  }
  bytes.Add(witness);
  for (const Sent& one : sent) bytes.Add(one.hash);
  bytes.Add(done.size());
  for (const int left_over : {left.elections, left.votes, left.changes, left.crashes, left.shrinks,
                              left.grows, left.reminders, left.restores, restores, tenures}) {
    bytes.Add(static_cast<uint64_t>(left_over));
  }
  return bytes.Hash();
}

}  // namespace longhaul::coordinator::space
