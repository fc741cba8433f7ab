package gormguard_test

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

var paths = slices.Concat(updatePaths, insertPaths, deletePaths, associationPaths, rawPaths, tablePaths, transactionPaths, sessionPaths, genericPaths)

// pathCount is written by hand, so that no path is dropped unnoticed.
var pathCount = map[string]int{"sqlite": 145, "postgres": 148, "mysql": 136}

func fn(run func(c *cell) *gorm.DB) func(*cell) error {
	return func(c *cell) error { return run(c).Error }
}

func (c *cell) item(id int64) *Item { return &Item{ID: id, SKU: c.sku} }

// loaded reads an item as a caller does before he changes it.
func (c *cell) loaded(id int64) *Item {
	var i Item
	if err := c.bare.First(&i, id).Error; err != nil {
		panic(err)
	}
	return &i
}

var updatePaths = []path{
	{name: "Update", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("stock", 50) })},
	{name: "Updates struct", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(Item{Stock: 50}) })},
	{name: "Updates map", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(map[string]any{"stock": 50}) })},
	{name: "Updates loaded", run: fn(func(c *cell) *gorm.DB { i := c.loaded(1); i.Stock = 50; return c.tx.Updates(i) })},
	{name: "Update with Expr", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("stock", gorm.Expr("stock + ?", 5)) })},
	{name: "Update with subquery", only: "sqlite", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(c.item(1)).Update("stock", c.tx.Model(&Tag{}).Select("count(*) + 70"))
	})},
	{name: "Update slice model", run: fn(func(c *cell) *gorm.DB { return c.tx.Model([]*Item{c.item(1), c.item(2)}).Update("stock", 50) })},
	{name: "UpdateColumn", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).UpdateColumn("stock", 50) })},
	{name: "UpdateColumns", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).UpdateColumns(Item{Stock: 50}) })},
	{name: "Update where", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Where("stock < ?", 3).Update("note", "x") })},
	{name: "Update where id", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Where("id = ?", 1).Update("note", "x") })},
	{name: "Update or", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Where("id = ?", 1).Or("id = ?", 2).Update("note", "x")
	})},
	{name: "Update or with newlines", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Where("id = 1\nOR\nid = 2").Where("stock > 0").Update("note", "x")
	})},
	{name: "Update not", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Not("id = ?", 1).Update("note", "x") })},
	{name: "Update subquery condition", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Where("id IN (?)", c.tx.Model(&Tag{}).Select("id")).Update("note", "x")
	})},
	{name: "Select Updates", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Select("Note").Updates(Item{Note: "x", Stock: 5}) })},
	{name: "Select star", run: fn(func(c *cell) *gorm.DB { i := c.loaded(1); i.Note = "x"; return c.tx.Model(i).Select("*").Updates(i) })},
	{name: "Omit token", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Omit("Token").Updates(Item{Note: "x", Token: 99}) })},
	{name: "token by hand", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(c.item(1)).Updates(map[string]any{"note": "x", "fence_token": 99})
	})},
	{name: "SkipHooks", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{SkipHooks: true}).Model(c.item(1)).Update("note", "x")
	})},
	{name: "Unscoped Updates", run: fn(func(c *cell) *gorm.DB { return c.tx.Unscoped().Model(&Doc{ID: 1, SKU: c.sku}).Update("body", "x") })},
	{name: "Update soft model", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Doc{ID: 1, SKU: c.sku}).Update("body", "x") })},
	{name: "clause Set", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Where("id = 1").Clauses(clause.Set{{Column: clause.Column{Name: "note"}, Value: "x"}}).Updates(map[string]any{})
	})},
	{name: "Returning", only: "postgres", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Clauses(clause.Returning{}).Update("note", "x") })},
	{name: "Returning sqlite", only: "sqlite", run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Clauses(clause.Returning{}).Update("note", "x") })},
	{name: "AllowGlobalUpdate", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&Item{}).Update("note", "x")
	})},
	{name: "no changes", nothing: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(map[string]any{}) })},
	{name: "Save", run: fn(func(c *cell) *gorm.DB { i := c.loaded(1); i.Note = "x"; return c.tx.Save(i) })},
	{name: "Save missing", blind: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Save(&Item{ID: 77, SKU: c.sku}) })},
	{name: "Save slice", run: fn(func(c *cell) *gorm.DB {
		a, b := c.loaded(1), c.loaded(2)
		a.Note, b.Note = "x", "y"
		return c.tx.Save([]*Item{a, b})
	})},
	{name: "composite key", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Pair{A: 1, B: 2}).Update("value", 50) })},
	{name: "composite Save", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Save(&Pair{A: 1, B: 2, Value: 50}) })},
	{name: "no primary key", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Bare{}).Where("name = ?", "bare").Update("value", 50) })},
	{name: "embedded column", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Wide{ID: 1}).Update("value", 50) })},
	{name: "by table name", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Named{ID: 1}).Update("value", 50) })},
	{name: "hook that writes", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Hooked{ID: 1}).Update("value", 50) })},
	{name: "FirstOrCreate Assign found", run: fn(func(c *cell) *gorm.DB {
		var i Item
		return c.tx.Where("id = ?", 1).Assign(Item{Note: "x"}).FirstOrCreate(&i)
	})},
	{name: "FirstOrInit Assign Save", run: func(c *cell) error {
		var i Item
		if err := c.tx.Where("id = ?", 1).Assign(Item{Note: "x"}).FirstOrInit(&i).Error; err != nil {
			return err
		}
		return c.tx.Save(&i).Error
	}},
}

var insertPaths = []path{
	{name: "Create", blind: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Create(&Item{ID: 10, SKU: c.sku}) })},
	{name: "Create map", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Create(map[string]any{"ID": 10, "SKU": c.sku, "Stock": 1, "Note": ""})
	})},
	{name: "Create slice of maps", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Item{}).Create([]map[string]any{{"id": 10, "sku": c.sku, "stock": 1, "note": ""}, {"id": 11, "sku": c.sku, "stock": 1, "note": ""}})
	})},
	{name: "Create slice", blind: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Create([]Item{{ID: 10, SKU: c.sku}, {ID: 11, SKU: c.sku}}) })},
	{name: "CreateInBatches", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.CreateInBatches([]Item{{ID: 10, SKU: c.sku}, {ID: 11, SKU: c.sku}, {ID: 12, SKU: c.sku}}, 2)
	})},
	{name: "Unscoped Create", blind: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Unscoped().Create(&Doc{ID: 10, SKU: c.sku}) })},
	{name: "Create without key", any: true, blind: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Create(&Bare{Name: "new"}) })},
	{name: "Create Select", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Select("ID", "SKU", "Stock", "Note").Create(&Item{ID: 10, SKU: c.sku})
	})},
	{name: "UpdateAll", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "UpdateAll batch", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create([]Item{{ID: 10, SKU: c.sku}, {ID: 1, SKU: c.sku, Note: "x"}})
	})},
	{name: "DoUpdates columns", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "DoUpdates assignments", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{"note": "x", "fence_token": 99})}).Create(&Item{ID: 1, SKU: c.sku})
	})},
	{name: "OnConflict Where", limited: map[string]bool{"mysql": true}, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"note"}), Where: clause.Where{Exprs: []clause.Expression{clause.Eq{Column: "items.stock", Value: 1}}}}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "OnConstraint", only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{OnConstraint: "items_pkey", DoUpdates: clause.AssignmentColumns([]string{"note"})}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "OnConflict TargetWhere", only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, TargetWhere: clause.Where{Exprs: []clause.Expression{clause.Gt{Column: "id", Value: 0}}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "DoNothing new", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{DoNothing: true}).Create([]Item{{ID: 1, SKU: c.sku, Note: "x"}, {ID: 10, SKU: c.sku}})
	})},
	{name: "DoNothing old", nothing: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "Insert OR REPLACE", only: "sqlite", raw: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.Insert{Modifier: "OR REPLACE"}).Create(&Item{ID: 1, SKU: c.sku, Note: "x"})
	})},
	{name: "Insert IGNORE", only: "mysql", raw: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.Insert{Modifier: "IGNORE"}).Create(&Item{ID: 10, SKU: c.sku, Note: "x"})
	})},
	{name: "FirstOrCreate missing", blind: true, run: fn(func(c *cell) *gorm.DB {
		i := Item{}
		return c.tx.Where(Item{ID: 10}).Attrs(Item{SKU: c.sku}).FirstOrCreate(&i)
	})},
}

var deletePaths = []path{
	{name: "Delete", run: fn(func(c *cell) *gorm.DB { return c.tx.Delete(c.item(1)) })},
	{name: "Delete by key", run: fn(func(c *cell) *gorm.DB { return c.tx.Delete(&Item{}, 1) })},
	{name: "Delete by keys", run: fn(func(c *cell) *gorm.DB { return c.tx.Delete(&Item{}, []int{1, 2}) })},
	{name: "Delete where", run: fn(func(c *cell) *gorm.DB { return c.tx.Where("stock < ?", 3).Or("id = ?", 3).Delete(&Item{}) })},
	{name: "Delete slice", run: fn(func(c *cell) *gorm.DB { return c.tx.Delete([]*Item{c.item(1), c.item(2)}) })},
	{name: "Delete composite", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Delete(&Pair{A: 1, B: 2}) })},
	{name: "Delete without key", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Where("name = ?", "bare").Delete(&Bare{}) })},
	{name: "Delete all", run: fn(func(c *cell) *gorm.DB { return c.tx.Session(&gorm.Session{AllowGlobalUpdate: true}).Delete(&Item{}) })},
	{name: "Delete returning", only: "postgres", run: fn(func(c *cell) *gorm.DB {
		var gone []Item
		return c.tx.Clauses(clause.Returning{}).Where("id = ?", 1).Delete(&gone)
	})},
	{name: "soft Delete", run: fn(func(c *cell) *gorm.DB { return c.tx.Delete(&Doc{ID: 1, SKU: c.sku}) })},
	{name: "soft Delete where", run: fn(func(c *cell) *gorm.DB { return c.tx.Where("id > ?", 0).Delete(&Doc{}) })},
	{name: "Unscoped Delete", run: fn(func(c *cell) *gorm.DB { return c.tx.Unscoped().Delete(&Doc{ID: 1, SKU: c.sku}) })},
	{name: "Delete with associations", run: fn(func(c *cell) *gorm.DB { return c.tx.Select("Items").Delete(&Owner{ID: 1, SKU: c.sku}) })},
	{name: "Delete with join rows", run: fn(func(c *cell) *gorm.DB { return c.tx.Select("Tags").Delete(c.item(1)) })},
}
