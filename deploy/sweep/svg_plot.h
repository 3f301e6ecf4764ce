// Plots as SVG inside an HTML page: lines and markers over linear or logarithmic axes, and stacked
// bars. The page has the colours (report_style.h). Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_SVG_PLOT_H_
#define LONGHAUL_DEPLOY_SWEEP_SVG_PLOT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::cli {

// How many colours and how many shapes (dash pattern and marker) can be told apart.
inline constexpr int kPlotColours = 8;
inline constexpr int kPlotShapes = 4;

struct PlotPoint {
  double x = 0, y = 0;
  std::string hint;  // shown when pointed at
};

struct PlotSeries {
  std::string name;
  int colour = 0, shape = 0;
  std::vector<PlotPoint> points;
  bool line = true;
  bool markers = true;
};

struct PlotAxis {
  std::string label;  // with the unit
  bool logarithmic = false;
  std::vector<std::pair<double, std::string>> fixed_ticks;  // instead of chosen ones
};

struct Plot {
  std::string title;        // above it
  std::string description;  // for readers who cannot see the plot
  PlotAxis x, y;
  std::vector<PlotSeries> series;
  bool diagonal = false;  // y = x, with a band of 10 % on either side
};

// Leaves out points that a logarithmic axis cannot show. "" if nothing is left.
std::string SvgOf(const Plot& plot);

struct BarPart {
  std::string name;
  int colour = 0;
  double share = 0;  // of 1
};
struct Bar {
  std::string label;
  std::vector<BarPart> parts;  // beside each other, from the left
  std::vector<BarPart> below;  // thin bars below, of work at the same time
};
struct BarPlot {
  std::string title, description;
  std::vector<Bar> bars;
};
std::string SvgOf(const BarPlot& plot);

// A small picture of a series' line and marker, or of a colour, for legends.
std::string LineSwatch(int colour, int shape);
std::string ColourSwatch(int colour);

// Values of ticks between `least` and `most`: 1, 2 or 5 times a power of ten.
std::vector<double> LinearTicks(double least, double most, int about);
std::vector<double> LogarithmicTicks(double least, double most);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_SVG_PLOT_H_
