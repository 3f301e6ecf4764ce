#include "proto/witness/wire.h"

#include <algorithm>

#include "base/overloaded.h"

namespace longhaul::witness {

v1::WitnessAsked ToProto(const Request& request) {
  v1::WitnessAsked asked;
  std::visit(Overloaded{
                 [&](const Elect& elect) {
                   v1::WitnessAsked::Elect& to = *asked.mutable_elect();
                   to.set_term(elect.term);
                   to.set_tenure(elect.tenure.value());
                   to.set_seat(elect.seat);
                   to.mutable_history()->set_number(elect.number);
                   to.set_voter(elect.voter);
                 },
                 [&](const SetInSync& set) {
                   v1::WitnessAsked::SetInSync& to = *asked.mutable_set_in_sync();
                   to.set_term(set.term);
                   to.set_tenure(set.tenure.value());
                   to.mutable_in_sync()->Add(set.in_sync.begin(), set.in_sync.end());
                   to.set_ask(set.ask);
                 },
                 [&](const Beat& beat) {
                   v1::WitnessAsked::Beat& to = *asked.mutable_beat();
                   to.set_term(beat.term);
                   to.set_tenure(beat.tenure.value());
                   to.set_seat(beat.seat);
                   to.set_committed(beat.number);
                 },
                 [&](const Introduce& introduce) {
                   *asked.mutable_introduce()->mutable_record() = ToProto(introduce.record);
                 },
             },
             request);
  return asked;
}

StatusOr<Request> FromProto(const v1::WitnessAsked& asked) {
  switch (asked.body_case()) {
    case v1::WitnessAsked::kElect:
      return Elect{.term = asked.elect().term(),
                   .tenure = Tenure(asked.elect().tenure()),
                   .seat = asked.elect().seat(),
                   .number = asked.elect().history().number(),
                   .voter = asked.elect().voter()};
    case v1::WitnessAsked::kSetInSync: {
      SetInSync set{
          .term = asked.set_in_sync().term(),
          .tenure = Tenure(asked.set_in_sync().tenure()),
          .in_sync = {asked.set_in_sync().in_sync().begin(), asked.set_in_sync().in_sync().end()},
          .ask = asked.set_in_sync().ask()};
      std::ranges::sort(set.in_sync);
      return set;
    }
    case v1::WitnessAsked::kBeat:
      return Beat{.term = asked.beat().term(),
                  .tenure = Tenure(asked.beat().tenure()),
                  .seat = asked.beat().seat(),
                  .number = asked.beat().committed()};
    case v1::WitnessAsked::kIntroduce:
      return Introduce{FromProto(asked.introduce().record())};
    case v1::WitnessAsked::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a request came that this version does not know; are witness and coordinators of the same "
      "version?");
}

v1::WitnessRecord ToProto(const Record& record) {
  v1::WitnessRecord to;
  to.set_id(record.id);
  to.set_term(record.term);
  to.set_tenure(record.tenure.value());
  to.set_seat(record.seat);
  to.mutable_in_sync()->Add(record.in_sync.begin(), record.in_sync.end());
  to.set_ask(record.ask);
  to.set_seen(record.seen);
  return to;
}

Record FromProto(const v1::WitnessRecord& record) {
  Record to{.id = record.id(),
            .term = record.term(),
            .tenure = Tenure(record.tenure()),
            .seat = record.seat(),
            .in_sync = {record.in_sync().begin(), record.in_sync().end()},
            .ask = record.ask(),
            .seen = record.seen()};
  std::ranges::sort(to.in_sync);
  return to;
}

}  // namespace longhaul::witness
