package servertest

var Require = require
