package localserver

var (
	FindTool = findTool
	Version  = version
)
