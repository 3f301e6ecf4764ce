#include "deploy/sweep/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "deploy/sweep/html.h"

namespace longhaul::cli {
namespace {

// In units of the picture; a phone shows it at about two thirds of that.
constexpr double kWidth = 520, kHeight = 340;
constexpr double kLeft = 78, kRight = 40, kTop = 14, kBottom = 58;
// Of a character of a tick's text, at most.
constexpr double kTickCharacter = 8.5;

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }
};

// Where values of one axis are in the picture.
class Scale {
 public:
  Scale(bool logarithmic, Range range, double begin, double end)
      : logarithmic_(logarithmic), begin_(begin), end_(end) {
    low_ = Place(range.least);
    high_ = Place(range.most);
    if (low_ == high_) {  // one value: in the middle
      low_ -= 1;
      high_ += 1;
    }
    const double margin = 0.05 * (high_ - low_);
    low_ -= margin;
    high_ += margin;
  }
  double operator()(double value) const {
    return std::lerp(begin_, end_, (Place(value) - low_) / (high_ - low_));
  }
  double least() const { return logarithmic_ ? std::pow(10, low_) : low_; }
  double most() const { return logarithmic_ ? std::pow(10, high_) : high_; }

 private:
  double Place(double value) const { return logarithmic_ ? std::log10(value) : value; }
  const bool logarithmic_;
  const double begin_, end_;
  double low_ = 0, high_ = 1;
};

bool Shows(const PlotAxis& axis, double value) {
  return std::isfinite(value) && (!axis.logarithmic || value > 0);
}

std::string ShortNumber(double value) {
  if (value != 0 && std::abs(value) >= 1000) return WholeText(value);
  return fmt::format("{:.3g}", value);
}

std::vector<std::pair<double, std::string>> TicksOf(const PlotAxis& axis, const Scale& scale) {
  if (!axis.fixed_ticks.empty()) return axis.fixed_ticks;
  constexpr int kAbout = 6;
  const std::vector<double> values = axis.logarithmic
                                         ? LogarithmicTicks(scale.least(), scale.most())
                                         : LinearTicks(scale.least(), scale.most(), kAbout);
  std::vector<std::pair<double, std::string>> ticks;
  for (const double value : values) {
    ticks.emplace_back(value, ShortNumber(value));
  }
  return ticks;
}

std::string Axes(const Plot& plot, const Scale& x, const Scale& y) {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string out;
  std::vector<std::pair<double, double>> taken;  // by texts along the x axis
  for (const auto& [value, text] : TicksOf(plot.x, x)) {
    const double at = x(value);
    out += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>",
                       at, kTop, bottom);
    const double half = kTickCharacter * static_cast<double>(text.size()) / 2;
    const bool free = std::ranges::none_of(taken, [&](const auto& other) {
      return at - half < other.second && other.first < at + half;
    });
    if (!free) continue;
    taken.emplace_back(at - half, at + half);
    out +=
        fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                    at, bottom + 18, EscapeHtml(text));
  }
  for (const auto& [value, text] : TicksOf(plot.y, y)) {
    const double at = y(value);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>"
        "<text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, at, right, kLeft - 6, at + 4, EscapeHtml(text));
  }
  out += fmt::format(
      "<path class=\"axis\" d=\"M{0} {1}V{2}H{3}\"/>"
      "<text class=\"label\" x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">{6}</text>"
      "<text class=\"label\" transform=\"translate(15 {7}) rotate(-90)\" "
      "text-anchor=\"middle\">{8}</text>\n",
      kLeft, kTop, bottom, right, (kLeft + right) / 2, kHeight - 10, EscapeHtml(plot.x.label),
      (kTop + bottom) / 2, EscapeHtml(plot.y.label));
  return out;
}

// Around the origin.
std::string MarkerPath(int shape) {
  switch (shape % kPlotShapes) {
    case 0:
      return "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0Z";
    case 1:
      return "M-4-4H4V4H-4Z";
    case 2:
      return "M0-5.5L5 4H-5Z";
    default:
      return "M0-6L5 0L0 6L-5 0Z";
  }
}

std::string Classes(int colour, int shape) {
  return fmt::format("c{} d{}", colour % kPlotColours, shape % kPlotShapes);
}

std::string SeriesOf(const PlotSeries& series, const Plot& plot, const Scale& x, const Scale& y) {
  std::string path, markers;
  for (const PlotPoint& point : series.points) {
    if (!Shows(plot.x, point.x) || !Shows(plot.y, point.y)) continue;
    const double at_x = x(point.x), at_y = y(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x, at_y);
    if (!series.markers) continue;
    markers += fmt::format(
        "<path class=\"marker c{}\" transform=\"translate({:.1f} {:.1f})\" d=\"{}\">"
        "<title>{}</title></path>",
        series.colour % kPlotColours, at_x, at_y, MarkerPath(series.shape), EscapeHtml(point.hint));
  }
  if (path.empty()) return "";
  std::string out = "<g>";
  if (series.line) {
    out += fmt::format("<path class=\"line {}\" d=\"{}\"><title>{}</title></path>",
                       Classes(series.colour, series.shape), path, EscapeHtml(series.name));
  }
  return out + markers + "</g>\n";
}

// Both axes are alike.
std::string Diagonal(const Scale& x, const Scale& y) {
  const double from = std::max(x.least(), y.least()), to = std::min(x.most(), y.most());
  if (from >= to) return "";
  constexpr double kBand = 0.10;
  const auto clamp = [&](double value) { return std::clamp(value, y.least(), y.most()); };
  return fmt::format(
      "<path class=\"band\" d=\"M{0:.1f} {1:.1f}L{2:.1f} {3:.1f}L{2:.1f} {4:.1f}L{0:.1f} "
      "{5:.1f}Z\"/><path class=\"diagonal\" d=\"M{0:.1f} {6:.1f}L{2:.1f} {7:.1f}\"/>\n",
      x(from), y(clamp(from * (1 - kBand))), x(to), y(clamp(to * (1 - kBand))),
      y(clamp(to * (1 + kBand))), y(clamp(from * (1 + kBand))), y(from), y(to));
}

std::string Figure(const std::string& title, const std::string& description, double width,
                   double height, const std::string& content) {
  return fmt::format(
      "<figure class=\"plot\"><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n{}</svg></figure>\n",
      EscapeHtml(title), width, height, EscapeHtml(description), content);
}

}  // namespace

std::string SvgOf(const Plot& plot) {
  Range x_range, y_range;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!Shows(plot.x, point.x) || !Shows(plot.y, point.y)) continue;
      x_range.Add(point.x);
      y_range.Add(point.y);
    }
  }
  if (x_range.empty()) return "";
  if (plot.diagonal) {
    x_range.Add(y_range.least);
    x_range.Add(y_range.most);
    y_range = x_range;
  }
  const Scale x(plot.x.logarithmic, x_range, kLeft, kWidth - kRight);
  const Scale y(plot.y.logarithmic, y_range, kHeight - kBottom, kTop);
  std::string content = Axes(plot, x, y);
  if (plot.diagonal) content += Diagonal(x, y);
  for (const PlotSeries& series : plot.series) content += SeriesOf(series, plot, x, y);
  return Figure(plot.title, plot.description, kWidth, kHeight, content);
}

std::string SvgOf(const BarPlot& plot) {
  if (plot.bars.empty()) return "";
  constexpr double kLabels = 190, kBarWidth = kWidth - kLabels - 12, kRow = 28, kThick = 14;
  const double height = kRow * static_cast<double>(plot.bars.size()) + 24;
  std::string content;
  const auto add_parts = [&](const std::vector<BarPart>& parts, double y, double thickness) {
    double begin = 0;
    for (const BarPart& part : parts) {
      const double share = std::clamp(part.share, 0.0, 1.0 - begin);
      content += fmt::format(
          "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\">"
          "<title>{}: {}</title></rect>",
          part.colour % kPlotColours, kLabels + begin * kBarWidth, y, share * kBarWidth, thickness,
          EscapeHtml(part.name), PerCentText(part.share));
      begin += share;
    }
  };
  for (int per_cent = 0; per_cent <= 100; per_cent += 25) {
    const double x = kLabels + kBarWidth * per_cent / 100;
    content += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1}\"/>"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{2}\" text-anchor=\"{3}\">{4} %</text>\n",
        x, height - 18, height - 4, per_cent == 100 ? "end" : "middle", per_cent);
  }
  for (size_t i = 0; i < plot.bars.size(); ++i) {
    const Bar& bar = plot.bars[i];
    const double y = 4 + kRow * static_cast<double>(i);
    content +=
        fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                    kLabels - 8, y + kThick - 2, EscapeHtml(bar.label));
    add_parts(bar.parts, y, kThick);
    add_parts(bar.below, y + kThick + 1, 5);
    content += "\n";
  }
  return Figure(plot.title, plot.description, kWidth, height, content);
}

std::string LineSwatch(int colour, int shape) {
  return fmt::format(
      "<svg class=\"swatch\" viewBox=\"0 0 40 14\" aria-hidden=\"true\"><path class=\"line {}\" "
      "d=\"M2 7H38\"/><path class=\"marker c{}\" transform=\"translate(20 7)\" d=\"{}\"/></svg>",
      Classes(colour, shape), colour % kPlotColours, MarkerPath(shape));
}

std::string ColourSwatch(int colour) {
  return fmt::format(
      "<svg class=\"swatch\" viewBox=\"0 0 20 14\" aria-hidden=\"true\"><rect class=\"f{}\" "
      "x=\"2\" y=\"1\" width=\"16\" height=\"12\"/></svg>",
      colour % kPlotColours);
}

std::vector<double> LinearTicks(double least, double most, int about) {
  const double rough = (most - least) / about;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  constexpr double kRounding = 1e-9;  // of a step: 106 x 0.05 is a little more than 5.3
  const auto first = static_cast<int64_t>(std::ceil(least / step - kRounding));
  const auto last = static_cast<int64_t>(std::floor(most / step + kRounding));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::vector<double> LogarithmicTicks(double least, double most) {
  constexpr size_t kEnough = 3;
  for (const std::vector<double>& factors :
       {std::vector<double>{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}}) {
    std::vector<double> ticks;
    const auto first = static_cast<int>(std::floor(std::log10(least)));
    const auto last = static_cast<int>(std::floor(std::log10(most)));
    for (int power = first; power <= last; ++power) {
      for (const double factor : factors) {
        const double value = factor * std::pow(10, power);
        if (value >= least && value <= most) ticks.push_back(value);
      }
    }
    if (ticks.size() >= kEnough) return ticks;
  }
  return LinearTicks(least, most, 4);
}

}  // namespace longhaul::cli
