#include "planner/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "planner/links.h"
#include "planner/memory.h"
#include "planner/order.h"
#include "planner/pipeline_cost.h"
#include "planner/place_workers.h"
#include "planner/retune.h"
#include "planner/tied_cost.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

std::string Split(const Plan& plan) {
  const std::vector<Cell>& cells = plan.assignment.cells;
  std::string text = fmt::format("{} stage{}: ", cells.size(), cells.size() == 1 ? "" : "s");
  for (const Cell& cell : cells) {
    text += fmt::format("{}{} has {} layer{}", &cell == &cells.front() ? "" : ", ",
                        cell.worker_name, cell.layers.count, cell.layers.count == 1 ? "" : "s");
  }
  return text + ".";
}

// What a step's collectives send and take, at the stage where they take the most.
std::string Collectives(const PlanRequest& request, const Plan& plan) {
  const uint32_t microbatches = request.spec.train.microbatches;
  const double step = plan.prediction.step_seconds;
  uint64_t sent = 0, to_experts = 0;
  std::optional<double> inside;
  double beside = 0;
  std::string by;
  for (const CellEstimate& cell : plan.cells) {
    if (!cell.group) continue;
    if (by.empty()) {
      by = fmt::format(" (hidden states by {}, their gradients by {})",
                       cell.group->forward_collective, cell.group->backward_collective);
    }
    sent = std::max(sent, cell.group->sent.total() * microbatches);
    to_experts = std::max(to_experts, cell.group->sent.all_to_all * microbatches);
    if (cell.group->collective_seconds) {
      inside = std::max(inside.value_or(0), *cell.group->collective_seconds * microbatches);
    }
    beside = std::max(beside, microbatches * (cell.forward_seconds + cell.backward_seconds -
                                              cell.group->even_share_seconds));
  }
  std::string text =
      fmt::format(" Ranks of a stage send each other up to {} a step{}", FormatBytes(sent), by);
  if (request.spec.group.expert > 1) {
    text += fmt::format(", up to {} of it tokens on their way to experts and back",
                        FormatBytes(to_experts));
  }
  if (inside && step > 0) {
    text += fmt::format(", in collectives that take up to {} of it ({:.0f}%)",
                        FormatSeconds(*inside), 100 * *inside / step);
  }
  if (beside > 0 && step > 0) {
    text += fmt::format(
        "; one device's time divided evenly would be up to {} less ({:.0f}% of the step)",
        FormatSeconds(beside), 100 * beside / step);
  }
  return text + ".";
}

// Who shares a stage, and what the prediction makes of that.
std::string Groups(const PlanRequest& request, const Plan& plan) {
  const uint32_t ranks = request.spec.group.tensor;
  if (ranks == 1) return "";
  std::string devices, fewer;
  for (size_t s = 0; s < plan.assignment.cells.size(); ++s) {
    const Cell& cell = plan.assignment.cells[s];
    const CandidateWorker& worker = request.workers[s];
    devices += fmt::format("{}{} of {}", s == 0 ? "" : ", ",
                           GroupText(cell.group, plan.cells[s].device_kind, cell.devices),
                           cell.worker_name);
    if (cell.setting.threads == request.spec.pipeline.threads_per_stage) continue;
    fewer += fmt::format(
        " {} has {} cores for {} ranks, so each has {} of the {} threads that "
        "pipeline.threads_per_stage asks for.",
        cell.worker_name, worker.cores, ranks, cell.setting.threads,
        request.spec.pipeline.threads_per_stage);
  }
  const uint32_t parts = request.spec.group.expert;
  const std::string experts =
      parts == 1 ? ""
                 : fmt::format(
                       " A block's {} experts are in {} parts (group.expert): {} on each "
                       "rank.",
                       request.spec.model.experts, parts, request.spec.model.experts / parts);
  if (request.spec.replay) {
    return fmt::format(
        " Ranks share each stage (group.tensor): {}.{} The times of the replay are those of all "
        "ranks together.",
        devices, experts);
  }
  return fmt::format(
      " Ranks share each stage (group.tensor): {}.{} A stage's times were measured of all its "
      "ranks together.{}{}",
      devices, experts, Collectives(request, plan), fewer);
}

std::string ReplayNote(const RunSpec& spec) {
  if (!spec.replay) return "";
  return fmt::format(" A replay: compute is slept for the times of {}; codecs {}.",
                     spec.replay->source,
                     spec.replay->real_codecs ? "run on noise" : "are slept for, too");
}

std::string Rates(const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  std::string text;
  if (prediction.assumed_line_bits_per_second) {
    text += fmt::format(
        " It is assumed that every worker's line carries {} each way, {} of it "
        "goodput",
        FormatBitsPerSecond(static_cast<double>(*prediction.assumed_line_bits_per_second)),
        FormatBitsPerSecond(plan.cells.front().egress_bits_per_second));
  }
  if (prediction.assumed_delay_seconds) {
    text += fmt::format("{} one-way delay of {}",
                        text.empty() ? " It is assumed that links have a" : " and links have a",
                        FormatSeconds(*prediction.assumed_delay_seconds));
  }
  if (!text.empty()) text += '.';
  if (!RatesAreKnown(plan)) {
    text +=
        " The rates of the workers' network interfaces are not known and count as unlimited, so "
        "slow links will make a step longer than predicted; `longhaul plan --rate 100mbit` assumes "
        "one.";
  }
  return text;
}

std::string Traffic(const Plan& plan, const RunSpec& spec) {
  const std::vector<Edge>& edges = plan.assignment.edges;
  if (edges.empty()) return "";
  double forward = 0, backward = 0;
  for (const Edge& edge : edges) {
    if (edge.kind != EdgeKind::kActivations) continue;
    forward = std::max(forward, static_cast<double>(edge.forward.bytes));
    backward = std::max(backward, static_cast<double>(edge.backward.bytes));
  }
  const bool alike = !spec.links.HasAutoCodecs();
  std::string text =
      fmt::format(" A step sends {}{} down each link and {} up{}.", alike ? "" : "up to ",
                  FormatBytes(forward * spec.train.microbatches),
                  FormatBytes(backward * spec.train.microbatches),
                  alike ? fmt::format(" (with {} and {})", ToString(edges.front().forward.codec),
                                      ToString(edges.front().backward.codec))
                        : "");
  return text + Rates(plan);
}

std::string Sealed(const RunSpec& spec, const Plan& plan) {
  if (!plan.assignment.sealed) return "";
  if (HasRelays(plan.assignment)) {
    return " Links between workers are encrypted, because a relay carries one of them.";
  }
  return spec.links.encrypt == EncryptKind::kRequired
             ? " Links between workers are encrypted (links.encrypt: required)."
             : " Links between workers are encrypted, because at least one listens on an address "
               "that is not private (links.encrypt: auto).";
}

// Which links take the long way round.
std::string Relayed(const Plan& plan) {
  std::map<std::string, std::vector<const Edge*>> by_relay;
  for (const Edge& edge : plan.assignment.edges) {
    if (!edge.relays.empty()) by_relay[edge.relays.front().name].push_back(&edge);
  }
  std::string text;
  for (const auto& [relay, edges] : by_relay) {
    std::string pairs;
    for (const Edge* edge : edges) {
      pairs += fmt::format("{}{} and {}", pairs.empty() ? "" : ", ",
                           plan.assignment.Find(edge->from)->worker_name,
                           plan.assignment.Find(edge->to)->worker_name);
    }
    text += fmt::format(
        " Neither reaches the other of {}; {} through the relay of {}, whose line carries all "
        "bytes twice, in and out{}.",
        pairs, edges.size() == 1 ? "their link goes" : "their links go", relay,
        edges.size() == 1 ? ""
                          : fmt::format(", and is shared by {} links, each of which counts with "
                                        "that part of it",
                                        edges.size()));
  }
  return text;
}

// What of the bound is not the busiest resource's own work.
std::string Floor(const RunSpec& spec, const Prediction& prediction) {
  if (TraitsOf(spec.pipeline.schedule).overlaps_steps) {
    return fmt::format(
        " Steps overlap (pipeline.schedule: {}): the pipeline never runs empty, and each step's "
        "passes compute with parameters of one update less. Without that the {} would be at work "
        "as long, and wait besides.",
        ToString(spec.pipeline.schedule), prediction.busiest);
  }
  const double rest = prediction.lower_bound_seconds - prediction.floor_seconds;
  return fmt::format(
      " Of that bound {} are fill and drain, in which the pipeline runs full and empty again; for "
      "the other {} the {} is at work{}.",
      FormatSeconds(rest), FormatSeconds(prediction.floor_seconds), prediction.busiest,
      prediction.busiest_bytes == 0
          ? ""
          : fmt::format(" and carries {}", FormatBytes(prediction.busiest_bytes)));
}

// What the matrix that is both embedding and head costs, and what the other choice would.
std::string Tied(const PlanRequest& request, const Plan& plan) {
  const RunSpec& spec = request.spec;
  if (spec.model.lora) return "";  // neither changes
  const std::vector<Cell>& cells = plan.assignment.cells;
  const uint64_t elements =
      uint64_t{spec.model.VocabularyOver(request.data.vocabulary)} * spec.model.hidden;
  const std::string bytes = FormatBytes(elements * sizeof(float));
  if (cells.size() > 1 && spec.weights.split) {
    return fmt::format(
        " Embedding and head begin as one matrix and are trained apart (model.tied: split): no "
        "link carries it, and the export has {} parameters more. With model.tied: true {} and {} "
        "would send each other up to {} a step.",
        elements, cells.front().worker_name, cells.back().worker_name, bytes);
  }
  const auto tied = std::ranges::find(plan.assignment.edges, EdgeKind::kTied, &Edge::kind);
  if (tied == plan.assignment.edges.end()) return "";
  const double slower = TiedSeconds(plan);
  return fmt::format(
      " {} and {} hold the one matrix of embedding and head (model.tied: true) and send each other "
      "its gradient, about {} and {} a step{}; with {} nothing would be sent, and the export would "
      "have {} parameters more.",
      cells.front().worker_name, cells.back().worker_name, FormatBytes(tied->forward.bytes),
      FormatBytes(tied->backward.bytes),
      slower > 0 ? fmt::format(", which takes {}", FormatSeconds(slower)) : "",
      spec.weights.from.empty() ? "model.tied: false" : "model.tied: split", elements);
}

std::string Depths(const Plan& plan, const RunSpec& spec) {
  if (spec.pipeline.depth || !TraitsOf(spec.pipeline.schedule).searches_depth()) return "";
  const uint32_t all = spec.train.microbatches;
  std::string text, list;
  bool chosen = false;
  for (size_t s = 0; s < plan.cells.size(); ++s) {
    const Cell& cell = plan.assignment.cells[s];
    const uint32_t depth = cell.setting.depth, most = MostDepth(spec, plan.cells[s]);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", depth);
    chosen |= depth < most;
    if (most >= all || depth < most) continue;
    text += fmt::format("{}{} holds {} of {} microbatches",
                        text.empty() ? " Memory is short: " : ", ", cell.worker_name, depth, all);
  }
  const Prediction& prediction = plan.prediction;
  if (!text.empty()) {
    const double loss = prediction.step_seconds / prediction.unlimited_depth_step_seconds - 1;
    text += loss >= 0.01 ? fmt::format(", which costs {:.0f}% of speed.", 100 * loss)
                         : ", which costs less than 1% of speed.";
  }
  if (chosen) {
    text += fmt::format(
        " The stages have {} of {} microbatches in flight: fewer in any of them "
        "would make a step more than 1% longer than with all, were messages {} longer under way "
        "than is known or links a third faster.",
        list, all, longhaul::FormatDuration(schedule::kUnforeseenDelay));
  }
  if (!prediction.cut_short.empty())
    text += fmt::format(" More was not tried: {}.", prediction.cut_short);
  if (TraitsOf(spec.pipeline.schedule).may_change_depth() && !plan.assignment.edges.empty() &&
      !MayRetune(spec, plan)) {
    text += " Depths stay as planned while the run trains, because rates of links are not known.";
  }
  return text;
}

std::string Order(const Plan& plan) {
  const std::string& reason = plan.prediction.order_reason;
  if (reason.empty()) return "";
  return fmt::format(" On the wire {}.", reason);
}

// What codecs with state take of the workers' disks.
std::string Remembered(const Plan& plan) {
  uint64_t most = 0;
  const Cell* where = nullptr;
  for (const Cell& cell : plan.assignment.cells) {
    const uint64_t bytes = cell.message_record_bytes + cell.message_journal_bytes;
    if (bytes <= most) continue;
    most = bytes;
    where = &cell;
  }
  if (where == nullptr) return "";
  return fmt::format(" Message buffers take up to {} of disk on {}, the most of all workers.",
                     FormatBytes(most), where->worker_name);
}

// GPUs of workers that the run does not use.
std::string IdleGpus(const PlanRequest& request, const Plan& plan) {
  std::string workers;
  for (size_t s = 0; s < plan.assignment.cells.size(); ++s) {
    const CandidateWorker& worker = request.workers[s];
    const size_t ranks = plan.assignment.cells[s].group.tensor;
    if (!worker.on_gpu || worker.devices.size() <= ranks) continue;
    workers += fmt::format("{}{} has {} GPUs and uses {}", workers.empty() ? "" : ", ", worker.name,
                           worker.devices.size(), ranks);
  }
  if (workers.empty()) return "";
  return fmt::format(
      " {}: a worker has one stage at a time, so share its stage by group.tensor, or start a "
      "worker "
      "for each GPU.",
      workers);
}

// The memory of a GPU's host, where a stage nearly fills it.
std::string HostMemory(const PlanRequest& request, const Plan& plan) {
  constexpr double kMuch = 0.5;
  std::string text;
  for (size_t s = 0; s < plan.assignment.cells.size(); ++s) {
    const Cell& cell = plan.assignment.cells[s];
    const CandidateWorker& worker = request.workers[s];
    const auto needed =
        static_cast<double>(MemoryOf(request.spec, request.data.vocabulary, cell.layers.count,
                                     cell.roles.embedding, cell.roles.head, worker.on_gpu)
                                .host);
    const auto available = static_cast<double>(worker.host_memory_bytes);
    if (available == 0 || needed <= kMuch * available) continue;
    text += fmt::format(
        " Beside its GPU {} holds up to {} of snapshots and buffers in its host's memory, which is "
        "{}.",
        worker.name, FormatBytes(needed), FormatBytes(available));
  }
  return text;
}

// Where there are GPUs, whose speed hangs on it.
std::string Dtype(const PlanRequest& request) {
  const CandidateWorker *gpu = nullptr, *cpu = nullptr;
  for (const CandidateWorker& worker : request.workers) (worker.on_gpu ? gpu : cpu) = &worker;
  if (gpu == nullptr) return "";
  std::string text = fmt::format(" Matrix products of all stages are computed in {} (train.dtype)",
                                 ToString(request.spec.train.dtype));
  if (cpu != nullptr) text += fmt::format("; {} has a GPU, and {} none", gpu->name, cpu->name);
  return text + ".";
}

std::string Oddities(const PlanRequest& request) {
  std::string text;
  if (request.spec.replay && request.spec.replay->memory_bytes == 0) {
    text +=
        " The run file does not say how much memory the workers that it stands for have "
        "(replay.memory); it was taken to suffice.";
  }
  for (const CandidateWorker& worker : request.workers) {
    if (worker.memory_bytes != 0 || request.spec.replay) continue;
    text += fmt::format(" {} does not say how much memory it has; it was taken to suffice.",
                        worker.name);
  }
  for (const CandidateWorker& worker : request.workers) {
    if (!worker.on_gpu || worker.host_memory_bytes != 0) continue;
    text += fmt::format(
        " {} does not say how much memory its host has beside the GPU; it was taken to suffice.",
        worker.name);
  }
  for (const auto& [name, exception] : request.spec.links.by_worker) {
    const bool known = std::any_of(request.workers.begin(), request.workers.end(),
                                   [&name = name](const auto& one) { return one.name == name; });
    if (known) continue;
    text +=
        fmt::format(" The run file has an exception for worker {}, which has no stage here.", name);
  }
  return text;
}

}  // namespace

std::string SharedText(const RunSpec& spec, std::span<const CandidateWorker> workers) {
  if (spec.replay) return "";
  std::map<std::string, std::vector<std::string>> by_device;
  for (const CandidateWorker& worker : workers) {
    for (const std::string& device : worker.shared_devices) {
      by_device[device].push_back(worker.name);
    }
  }
  std::string text;
  for (const auto& [device, names] : by_device) {
    if (names.size() < 2) continue;
    text += fmt::format("{}{}", text.empty() ? "" : "; ", fmt::join(names, ", "));
  }
  if (text.empty()) return "";
  return fmt::format(
      " Workers that share a GPU compute more slowly while others of them do, which is reckoned "
      "with: {}.",
      text);
}

std::string PlacedText(const PlanRequest& request, const Plan& plan) {
  if (!request.placement || plan.assignment.cells.size() < 2) return "";
  const PlacementSummary& placed = *request.placement;
  const size_t needed = plan.assignment.cells.size();
  std::string text = fmt::format(
      " Workers and their order were chosen among {} candidates{}{}", placed.candidates,
      placed.left_out > 0 ? fmt::format(", without {} that share GPUs with these", placed.left_out)
                          : "",
      placed.is_exact ? ", all ways considered" : "");
  const auto than = [&](double seconds) {
    return fmt::format("a step would take {} ({:+.0f}%)", FormatSeconds(seconds),
                       100 * (seconds / placed.step_seconds - 1));
  };
  const bool is_named = placed.step_seconds == placed.name_order_seconds;
  if (is_named && placed.step_seconds == placed.first_by_name_seconds) {
    return text + fmt::format(
                      ": no others, and no other order, are faster by {:.0f}% or more than the "
                      "first by name in the order of their names.",
                      100 * kLeastGainOfPlacement);
  }
  if (!is_named) {
    text +=
        placed.name_order_seconds > 0
            ? "; of these workers in the order of their names " + than(placed.name_order_seconds)
            : "; in the order of their names these workers could not be a pipeline";
  }
  if (placed.candidates > needed) {
    text += placed.first_by_name_seconds > 0
                ? "; of the first by name " + than(placed.first_by_name_seconds)
                : "; the first by name could not be a pipeline in that order";
  }
  std::string guessed;
  for (const Edge& edge : plan.assignment.edges) {
    const CandidateWorker& from = request.workers[plan.assignment.PlaceOf(edge.from)];
    const CandidateWorker& to = request.workers[plan.assignment.PlaceOf(edge.to)];
    const auto known = from.to.find(to.id);
    if (known == from.to.end() || !known->second.is_estimate) continue;
    guessed += fmt::format("{}{} and {}", guessed.empty() ? "" : ", ", from.name, to.name);
  }
  if (!guessed.empty()) {
    text += fmt::format(". Not measured but estimated from other links between their regions: {}",
                        guessed);
  }
  return text + ".";
}

std::string Explain(const PlanRequest& request, const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  const bool is_alone = request.spec.replicas.count == 1;
  std::string text = is_alone ? Split(plan) + PlacedText(request, plan) : "";
  if (is_alone) text += SharedText(request.spec, request.workers);
  text += Groups(request, plan) + ReplayNote(request.spec) + Dtype(request);
  if (is_alone && prediction.step_seconds > 0) {
    text += fmt::format(
        " A step of {} microbatches ({} tokens) should take {} ({:.0f} tokens/s); no "
        "schedule could be below {}, and what sets that bound is the {}.",
        request.spec.train.microbatches, request.spec.TokensPerStep(),
        FormatSeconds(prediction.step_seconds),
        static_cast<double>(request.spec.TokensPerStep()) / prediction.step_seconds,
        FormatSeconds(prediction.lower_bound_seconds), prediction.bottleneck);
    text += Floor(request.spec, prediction);
  }
  text += Traffic(plan, request.spec) + Tied(request, plan) + Relayed(plan) +
          Sealed(request.spec, plan);
  text += Depths(plan, request.spec) + Order(plan);
  if (request.resume) {
    text += fmt::format(" It goes on from the checkpoint of step {}, with the split that wrote it.",
                        request.resume->step);
  }
  return text + IdleGpus(request, plan) + HostMemory(request, plan) + Remembered(plan) +
         Oddities(request);
}

}  // namespace longhaul::coordinator
