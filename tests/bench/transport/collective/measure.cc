#include "tests/bench/transport/collective/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/cuda/graph.h"
#include "tests/bench/transport/collective/compare.h"

namespace longhaul::collective::bench {
namespace {

using Json = nlohmann::json;
// For one batch, or for the slowest rank's comparisons.
constexpr absl::Duration kLimit = absl::Minutes(5);
constexpr std::byte kPoison{0xa5};

Deadline Limit() {
  return Deadline::After(kLimit);
}

class RankRun {
 public:
  explicit RankRun(RankSetting setting)
      : setting_(std::move(setting)),
        options_(*setting_.options),
        place_(*setting_.place),
        rank_(setting_.member->place().rank),
        element_(BytesPerElement(options_.dtype)) {}

  Status Run() {
    const std::vector<Job> jobs = JobsOf(options_);
    uint64_t in = 1, out = 1;
    for (const Job& job : jobs) {
      const Part part = PartOf(job, rank_, options_.ranks);
      in = std::max(in, part.in);
      out = std::max(out, part.out);
    }
    LH_ASSIGN_OR_RETURN(in_, place_.Allocate(in * element_));
    LH_ASSIGN_OR_RETURN(out_,
                        place_.Allocate((options_.in_place ? std::max(in, out) : out) * element_));
    LH_RETURN_IF_ERROR(place_.Write(in_, in * element_, [&](size_t at, std::span<std::byte> piece) {
      setting_.numbers->Inputs(rank_, at / element_, piece);
    }));
    for (const Job& job : jobs) LH_RETURN_IF_ERROR(RunJob(job));
    return absl::OkStatus();
  }

 private:
  // A candidate in a job.
  struct Lane {
    const Candidate* candidate = nullptr;
    Comparison eager;
    std::optional<cuda::Graph> graph;
    std::vector<double> rounds;
    Outcome outcome;
  };

  Status RunJob(const Job& job) {
    job_ = &job;
    part_ = PartOf(job, rank_, options_.ranks);
    std::vector<Lane> lanes(setting_.candidates.size());
    Json words = Json::array();
    for (size_t k = 0; k < lanes.size(); ++k) {
      lanes[k].candidate = &setting_.candidates[k];
      LH_ASSIGN_OR_RETURN(Json word, CheckOnce(&lanes[k]));
      words.push_back(std::move(word));
    }
    LH_RETURN_IF_ERROR(AgreeOnOutcomes(words, &lanes));
    std::vector<Lane*> running;
    for (Lane& lane : lanes) {
      if (lane.outcome.refused.empty()) running.push_back(&lane);
    }
    LH_ASSIGN_OR_RETURN(uint32_t iterations, WarmUp(running));
    if (options_.graph) {
      iterations = options_.replays;
      for (Lane* lane : running) LH_RETURN_IF_ERROR(Record(lane));
    }
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      for (Lane* lane : running) {
        LH_ASSIGN_OR_RETURN(const double seconds, Batch(lane, iterations));
        lane->rounds.push_back(seconds);
      }
    }
    LH_RETURN_IF_ERROR(AgreeOnTimes(running));
    if (rank_ == 0) setting_.done(RowsOf(lanes, iterations));
    return absl::OkStatus();
  }

  Status Call(Communicator& communicator) {
    const Job& job = *job_;
    std::byte* in = in_;
    std::byte* out = out_;
    if (options_.in_place) {
      in = out_ + (job.op == Op::kAllGather ? part_.place * element_ : 0);
      out = out_ + (job.op == Op::kReduceScatter ? part_.place * element_ : 0);
    }
    const Queue queue = place_.queue();
    const Dtype dtype = options_.dtype;
    switch (job.op) {
      case Op::kAllReduce:
        return communicator.AllReduce(in, out, job.count, dtype, Reduction::kSum, queue);
      case Op::kReduceScatter:
        return communicator.ReduceScatter(in, out, job.count, dtype, Reduction::kSum, queue);
      case Op::kAllGather:
        return communicator.AllGather(in, out, job.count, dtype, queue);
      default:
        if (job.counts.empty()) return communicator.AllToAll(in, out, job.count, dtype, queue);
        return communicator.AllToAllV(in, part_.send, out, part_.receive, dtype, queue);
    }
  }
  std::byte* Result() const {
    const bool inside = options_.in_place && job_->op == Op::kReduceScatter;
    return out_ + (inside ? part_.place * element_ : 0);
  }

  // In place: the inputs again, where calls take them.
  Status Reload(Communicator& communicator) {
    if (!options_.in_place) return absl::OkStatus();
    std::byte* const to = out_ + (job_->op == Op::kAllGather ? part_.place * element_ : 0);
    LH_RETURN_IF_ERROR(place_.Copy(to, in_, part_.in * element_));
    return communicator.Wait(place_.queue(), Limit());
  }
  // So that a result is a new one.
  Status Poison(Communicator& communicator) {
    LH_RETURN_IF_ERROR(
        place_.Write(out_, part_.out * element_, [](size_t, std::span<std::byte> piece) {
          std::fill(piece.begin(), piece.end(), kPoison);
        }));
    return Reload(communicator);
  }
  StatusOr<Comparison> CompareNow(const Lane& lane) {
    return Compare(&place_, Result(), part_, *setting_.numbers, options_.dtype, options_.ranks,
                   PromiseOf(lane.candidate->variant, job_->op, options_));
  }

  // One call with its comparison, for AgreeOnOutcomes.
  StatusOr<Json> CheckOnce(Lane* lane) {
    Communicator& communicator = *lane->candidate->communicator;
    LH_RETURN_IF_ERROR(communicator.Prepare(job_->op, job_->bytes / element_, options_.dtype));
    LH_RETURN_IF_ERROR(Poison(communicator));
    const Stats before = communicator.stats();
    Status done = Call(communicator);
    if (done.ok()) done = communicator.Wait(place_.queue(), Limit());
    if (absl::IsOutOfRange(done) || absl::IsUnimplemented(done)) {
      return Json{{"refused", std::string(Message(done))}};
    }
    if (!done.ok()) return Annotate(done, lane->candidate->variant.text);
    const Stats after = communicator.stats();
    LH_ASSIGN_OR_RETURN(lane->eager, CompareNow(*lane));
    return Json{{"elements", lane->eager.elements},
                {"differ", lane->eager.differ},
                {"wrong", lane->eager.wrong},
                {"error", lane->eager.error_squares},
                {"squares", lane->eager.squares},
                {"checksum", lane->eager.checksum},
                {"sent", after.all_sent_bytes() - before.all_sent_bytes()},
                {"tensor", after.tensor_bytes - before.tensor_bytes}};
  }

  StatusOr<std::vector<Json>> Tell(const Json& word) {
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                        setting_.member->Tell(word.dump(), Limit()));
    std::vector<Json> all;
    for (const std::string& text : words) {
      all.push_back(Json::parse(text, nullptr, /*allow_exceptions=*/false));
      if (all.back().is_discarded()) {
        return absl::InternalError("expected what another rank measured, got: " + text);
      }
    }
    return all;
  }

  Status AgreeOnOutcomes(const Json& own, std::vector<Lane>* lanes) {
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(own));
    for (size_t k = 0; k < lanes->size(); ++k) {
      Outcome& outcome = (*lanes)[k].outcome;
      double error = 0, squares = 0;
      bool agree = true;
      for (const Json& words : all) {
        const Json& word = words.at(k);
        if (word.contains("refused")) {
          outcome.refused = word["refused"];
          continue;
        }
        outcome.elements += word["elements"].get<uint64_t>();
        outcome.differ += word["differ"].get<uint64_t>();
        outcome.wrong += word["wrong"].get<uint64_t>();
        outcome.sent_bytes += word["sent"].get<uint64_t>();
        outcome.tensor_bytes += word["tensor"].get<uint64_t>();
        error += word["error"].get<double>();
        squares += word["squares"].get<double>();
        agree &= word["checksum"] == all[0].at(k).value("checksum", uint64_t{0});
      }
      outcome.error = error == 0 ? 0 : std::sqrt(error / squares);
      // A lossy all-reduce still gives all ranks the same bits.
      if (job_->op == Op::kAllReduce && !agree && outcome.refused.empty() &&
          PromiseOf((*lanes)[k].candidate->variant, job_->op, options_) == Promise::kLossy) {
        outcome.wrong = outcome.elements;
      }
    }
    return absl::OkStatus();
  }

  // How many calls a batch has: so many as fit its time.
  StatusOr<uint32_t> WarmUp(const std::vector<Lane*>& lanes) {
    double slowest = 0;
    for (Lane* lane : lanes) {
      LH_ASSIGN_OR_RETURN(const double seconds, Batch(lane, std::max(options_.warmup, 1u)));
      slowest = std::max(slowest, seconds);
    }
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(slowest));
    for (const Json& word : all) slowest = std::max(slowest, word.get<double>());
    const double fit = absl::ToDoubleSeconds(options_.batch_limit) / std::max(slowest, 1e-9);
    const uint32_t least = std::min(2u, options_.iterations);
    return static_cast<uint32_t>(
        std::clamp<double>(fit, least, std::max(least, options_.iterations)));
  }

  // Seconds of a call: from when all ranks are let go until this one's queue has done them all.
  StatusOr<double> Batch(Lane* lane, uint32_t iterations) {
    Communicator& communicator = *lane->candidate->communicator;
    LH_RETURN_IF_ERROR(Reload(communicator));
    LH_RETURN_IF_ERROR(setting_.gate->Pass(*setting_.member, Limit()));
    const MonoTime began = Now();
    for (uint32_t k = 0; k < iterations; ++k) {
      LH_RETURN_IF_ERROR(lane->graph.has_value() ? lane->graph->Launch(*place_.stream())
                                                 : Call(communicator));
    }
    if (Status done = communicator.Wait(place_.queue(), Limit()); !done.ok()) {
      return Annotate(done, lane->candidate->variant.text);
    }
    return absl::ToDoubleSeconds(Now() - began) / iterations;
  }

  // All ranks record between two barriers, and the replay must give what the eager call gave.
  Status Record(Lane* lane) {
    Communicator& communicator = *lane->candidate->communicator;
    LH_RETURN_IF_ERROR(setting_.gate->Pass(*setting_.member, Limit()));
    StatusOr<cuda::Graph> graph =
        cuda::Graph::Capture(*place_.stream(), [&] { return Call(communicator); });
    if (!graph.ok()) return Annotate(graph.status(), lane->candidate->variant.text);
    lane->graph.emplace(*std::move(graph));
    LH_RETURN_IF_ERROR(setting_.gate->Pass(*setting_.member, Limit()));
    LH_RETURN_IF_ERROR(Poison(communicator));
    LH_RETURN_IF_ERROR(lane->graph->Launch(*place_.stream()));
    LH_RETURN_IF_ERROR(communicator.Wait(place_.queue(), Limit()));
    LH_ASSIGN_OR_RETURN(Comparison replayed, CompareNow(*lane));
    // NCCL may sum in another order when it is recorded.
    const bool same_bits =
        PromiseOf(lane->candidate->variant, job_->op, options_) != Promise::kRounded;
    if (same_bits && replayed.checksum != lane->eager.checksum) {
      replayed.wrong = replayed.elements;
    }
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(replayed.wrong));
    for (const Json& word : all) lane->outcome.wrong += word.get<uint64_t>();
    return absl::OkStatus();
  }

  // The slowest rank's time counts.
  Status AgreeOnTimes(const std::vector<Lane*>& lanes) {
    Json own = Json::array();
    for (const Lane* lane : lanes) own.push_back(lane->rounds);
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(own));
    for (const Json& word : all) {
      for (size_t k = 0; k < lanes.size(); ++k) {
        for (size_t round = 0; round < lanes[k]->rounds.size(); ++round) {
          double& seconds = lanes[k]->rounds[round];
          seconds = std::max(seconds, word.at(k).at(round).get<double>());
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<Row> RowsOf(const std::vector<Lane>& lanes, uint32_t iterations) const {
    const auto native = std::find_if(lanes.begin(), lanes.end(), [](const Lane& lane) {
      return lane.candidate->variant.kind == Variant::Kind::kNative;
    });
    std::vector<Row> rows;
    for (const Lane& lane : lanes) {
      Row row{.job = *job_,
              .variant = lane.candidate->variant.text,
              .outcome = lane.outcome,
              .iterations = iterations,
              .rounds = lane.rounds};
      for (size_t round = 0; round < lane.rounds.size() && round < native->rounds.size(); ++round) {
        row.faster.push_back(native->rounds[round] / lane.rounds[round]);
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  RankSetting setting_;
  const Options& options_;
  Place& place_;
  const uint32_t rank_;
  const size_t element_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  const Job* job_ = nullptr;
  Part part_;
};

}  // namespace

Status MeasureAll(RankSetting setting) {
  return RankRun(std::move(setting)).Run();
}

}  // namespace longhaul::collective::bench
